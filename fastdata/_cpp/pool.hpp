// Threads that take images one at a time from a queue of batches.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "decode_image.hpp"

namespace fastdata {

struct Failure {
  int64_t index;
  int status;
  std::string message;
};

// One call's work: n images. Arrays are borrowed until run() returns.
struct Batch {
  int64_t count;
  const uint64_t* address;
  const int64_t* length;
  const uint8_t* codec;
  const int32_t* width;
  const int32_t* height;
  const int32_t* box;     // (n, 4)
  const double* window;   // (n, 4)
  const int32_t* size;    // (n, 2)
  const int32_t* rect;    // (n, 4)
  const bool* hflip;
  const bool* vflip;
  Options options;
  Output out;
};

// A lock that a forked child can take although a thread of its parent held it at the fork: whoever holds it is written
// down as a process, and a holder of another process is none. For short sections; waiting is by yielding.
class ForkSafeLock {
 public:
  void lock() noexcept;
  void unlock() noexcept { holder_.store(0, std::memory_order_release); }

 private:
  std::atomic<int> holder_{0};
};

// Owns its threads. They start with the first batch, end with stop() or the destructor (which join them), and start
// again when a batch comes after stop(). In a child made by fork() the parent's threads do not exist: the child starts
// its own with its first batch and leaves the parent's state alone. A pool of 0 threads works in the caller's, one batch
// at a time: where a process has one core's work to do, handing it over would only cost.
class Pool {
 public:
  Pool(int threads, const Kernels& kernels);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Decodes the batch and returns its failures, in order of index. Blocks; may be called from several threads at once:
  // while the last images of one batch are under way, threads that are free begin the next. May throw std::bad_alloc
  // or std::system_error (no thread could be started).
  std::vector<Failure> run(const Batch& batch);
  // Ends the threads once the batches that are queued are done.
  void stop();
  int threads() const { return threads_; }

 private:
  struct Task;
  struct State;
  std::shared_ptr<State> living_state();
  std::shared_ptr<State> start() const;
  static void work(std::shared_ptr<State> state, const Kernels& kernels);
  std::vector<Failure> run_here(const Batch& batch);

  const int threads_;
  const Kernels& kernels_;
  ForkSafeLock lock_;  // guards the two below
  int process_ = 0;  // whose threads state_ has
  // On the heap and changed by one store, so that a child forked in between finds the one or the other.
  std::shared_ptr<State>* state_ = nullptr;
  std::mutex here_;  // guards own_
  std::unique_ptr<Scratch> own_;
};

}  // namespace fastdata
