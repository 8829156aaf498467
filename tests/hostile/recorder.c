/* Records what a process does to the files under one folder, in order and with the bytes: LD_PRELOAD it.

   RECORD_UNDER: the folder. RECORD_TO: the file that the records are appended to. A record is a line "op first second
   offset length", the lengths of two texts and of the data, and then these. Ops: c create, t truncate, w write, s sync,
   r rename, e exchange, l link, u unlink, m mkdir, d rmdir, M mark, x what the model of the test does not know.
   record_mark(name) makes a mark; record_room(bytes) says how many bytes more can be written until the disk is full
   (nothing that is removed gives room; -1: any number). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long long room = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int folder_of(int dir, char *path) {
  char link[64];
  if (dir == AT_FDCWD) return getcwd(path, PATH_MAX) ? 0 : -1;
  snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
  ssize_t n = readlink(link, path, PATH_MAX - 1);
  if (n < 0) return -1;
  path[n] = 0;
  return 0;
}

static int is_under(const char *path) {
  const char *under = getenv("RECORD_UNDER");
  return under && !strncmp(path, under, strlen(under));
}

/* The absolute path of a name, "" where it is none of ours. */
static void path_at(int dir, const char *name, char *path) {
  if (name[0] == '/') {
    snprintf(path, PATH_MAX, "%s", name);
  } else if (folder_of(dir, path) == 0) {
    size_t n = strlen(path);
    snprintf(path + n, PATH_MAX - n, "/%s", name);
  } else {
    path[0] = 0;
  }
  if (!is_under(path)) path[0] = 0;
}

static void path_of(int fd, char *path) {
  if (folder_of(fd, path) || !is_under(path)) path[0] = 0;
}

static void put(int fd, const void *data, size_t n) {
  while (n > 0) {
    ssize_t done = syscall(SYS_write, fd, data, n);
    if (done <= 0) abort();
    data = (const char *)data + done;
    n -= (size_t)done;
  }
}

static void note(char op, const char *first, const char *second, long long offset, const void *data, size_t n) {
  char head[128];
  int fd = (int)syscall(SYS_openat, AT_FDCWD, getenv("RECORD_TO"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  int length = snprintf(head, sizeof head, "%c %zu %zu %lld %zu\n", op, strlen(first), strlen(second), offset, n);
  if (fd < 0) abort();
  put(fd, head, (size_t)length);
  put(fd, first, strlen(first));
  put(fd, second, strlen(second));
  put(fd, data, n);
  syscall(SYS_close, fd);
}

#define BEGIN \
  int kept; \
  pthread_mutex_lock(&lock);
#define END(result) \
  kept = errno; \
  pthread_mutex_unlock(&lock); \
  errno = kept; \
  return result;

void record_mark(const char *name) {
  BEGIN note('M', name, "", 0, "", 0);
  kept = errno;
  pthread_mutex_unlock(&lock);
  errno = kept;
}

void record_room(long long bytes) { room = bytes; }

static int open_and_note(int dir, const char *name, int flags, mode_t mode) {
  char path[PATH_MAX];
  BEGIN path_at(dir, name, path);
  int there = path[0] && syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
  int fd = (int)syscall(SYS_openat, dir, name, flags, mode);
  if (fd >= 0 && path[0] && !there) note('c', path, "", 0, "", 0);
  if (fd >= 0 && path[0] && there && (flags & O_TRUNC)) note('t', path, "", 0, "", 0);
  END(fd)
}

#define MODE(last) \
  mode_t mode = 0; \
  if (flags & (O_CREAT | __O_TMPFILE)) { \
    va_list more; \
    va_start(more, last); \
    mode = va_arg(more, mode_t); \
    va_end(more); \
  }
int open(const char *name, int flags, ...) { MODE(flags) return open_and_note(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return open_and_note(AT_FDCWD, name, flags, mode); }
int openat(int dir, const char *name, int flags, ...) { MODE(flags) return open_and_note(dir, name, flags, mode); }
int openat64(int dir, const char *name, int flags, ...) { MODE(flags) return open_and_note(dir, name, flags, mode); }
int creat(const char *name, mode_t mode) { return open_and_note(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* offset -1: at the file's own position. */
static ssize_t write_and_note(int fd, const struct iovec *pieces, int count, off_t offset) {
  char path[PATH_MAX];
  long long total = 0;
  BEGIN path_of(fd, path);
  for (int i = 0; i < count; i++) total += (long long)pieces[i].iov_len;
  if (path[0] && room >= 0 && total > room) {
    errno = ENOSPC;
    END(-1)
  }
  if (path[0] && room >= 0) room -= total;
  ssize_t done = offset < 0 ? syscall(SYS_writev, fd, pieces, count)
                                  : syscall(SYS_pwritev, fd, pieces, count, (long)offset, 0L);
  if (done > 0 && path[0]) {
    off_t at = offset < 0 ? (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR) - done : offset;
    ssize_t left = done;
    for (int i = 0; i < count && left > 0; i++) {
      size_t n = (size_t)left < pieces[i].iov_len ? (size_t)left : pieces[i].iov_len;
      note('w', path, "", (long long)at, pieces[i].iov_base, n);
      at += (off_t)n;
      left -= (ssize_t)n;
    }
  }
  END(done)
}

ssize_t write(int fd, const void *data, size_t n) {
  struct iovec piece = {(void *)data, n};
  return write_and_note(fd, &piece, 1, -1);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
  struct iovec piece = {(void *)data, n};
  return write_and_note(fd, &piece, 1, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset) { return pwrite(fd, data, n, offset); }
ssize_t writev(int fd, const struct iovec *pieces, int count) { return write_and_note(fd, pieces, count, -1); }
ssize_t pwritev(int fd, const struct iovec *pieces, int n, off_t offset) { return write_and_note(fd, pieces, n, offset); }
ssize_t pwritev64(int fd, const struct iovec *pieces, int n, off64_t at) { return write_and_note(fd, pieces, n, at); }

static int note_fd(char op, int fd, int result, long long length) {
  char path[PATH_MAX];
  BEGIN path_of(fd, path);
  if (result == 0 && path[0]) note(op, path, "", length, "", 0);
  END(result)
}

int ftruncate(int fd, off_t n) { return note_fd('t', fd, (int)syscall(SYS_ftruncate, fd, n), n); }
int ftruncate64(int fd, off64_t n) { return ftruncate(fd, n); }
int fsync(int fd) { return note_fd('s', fd, (int)syscall(SYS_fsync, fd), 0); }
int fdatasync(int fd) { return note_fd('s', fd, (int)syscall(SYS_fdatasync, fd), 0); }
int fallocate(int fd, int mode, off_t at, off_t n) {
  return note_fd('x', fd, (int)syscall(SYS_fallocate, fd, mode, at, n), 0);
}
int posix_fallocate(int fd, off_t at, off_t n) { return fallocate(fd, 0, at, n) ? errno : 0; }
int msync(void *at, size_t n, int flags) { return (int)syscall(SYS_msync, at, n, flags); }

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
  char path[PATH_MAX];
  void *result = (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
  if (fd >= 0 && (protection & PROT_WRITE) && (flags & MAP_SHARED)) {
    path_of(fd, path);
    if (path[0]) note('x', path, "a mapping that is written to", 0, "", 0);
  }
  return result;
}
void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t offset) {
  return mmap(at, n, protection, flags, fd, offset);
}

static int two(char op, int from, const char *old, int to, const char *new, unsigned flags) {
  char first[PATH_MAX], second[PATH_MAX];
  BEGIN path_at(from, old, first);
  path_at(to, new, second);
  int result = (int)(op == 'l' ? syscall(SYS_linkat, from, old, to, new, flags)
                               : syscall(SYS_renameat2, from, old, to, new, flags));
  if (result == 0 && (first[0] || second[0])) note(op == 'r' && flags ? 'e' : op, first, second, flags, "", 0);
  END(result)
}
int rename(const char *old, const char *new) { return two('r', AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return two('r', from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
  return two('r', from, old, to, new, flags);
}
int link(const char *old, const char *new) { return two('l', AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
  return two('l', from, old, to, new, (unsigned)flags);
}

static int one(char op, int dir, const char *name, long call, long third) {
  char path[PATH_MAX];
  BEGIN path_at(dir, name, path);
  int result = (int)syscall(call, dir, name, third);
  if (result == 0 && path[0]) note(op, path, "", 0, "", 0);
  END(result)
}
int truncate(const char *name, off_t n) {
  int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CLOEXEC, 0);
  int result = fd < 0 ? -1 : ftruncate(fd, n);
  if (fd >= 0) syscall(SYS_close, fd);
  return result;
}
int truncate64(const char *name, off64_t n) { return truncate(name, n); }
int unlink(const char *name) { return one('u', AT_FDCWD, name, SYS_unlinkat, 0); }
int unlinkat(int dir, const char *name, int flags) {
  return one(flags & AT_REMOVEDIR ? 'd' : 'u', dir, name, SYS_unlinkat, flags);
}
int rmdir(const char *name) { return one('d', AT_FDCWD, name, SYS_unlinkat, AT_REMOVEDIR); }
int mkdir(const char *name, mode_t mode) { return one('m', AT_FDCWD, name, SYS_mkdirat, mode); }
int mkdirat(int dir, const char *name, mode_t mode) { return one('m', dir, name, SYS_mkdirat, mode); }
