#include "pool.hpp"

#include <algorithm>
#include <new>

#include "process.hpp"

namespace fastdata {

struct Pool::Task {
  const Batch* batch;
  int64_t next = 0, done = 0;
  std::vector<Failure> failures;
  std::condition_variable finished;
};

struct Pool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Task*> queue;  // front first; a task leaves it when its last image is taken
  bool stopping = false;
  std::vector<std::thread> threads;

  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
};

namespace {

Status decode_one(Scratch& scratch, const Batch& b, int64_t i, char* message) {
  const Source source{reinterpret_cast<const uint8_t*>(b.address[i]), static_cast<size_t>(b.length[i]), b.codec[i],
                      b.width[i], b.height[i]};
  View view{};
  std::copy_n(b.box + 4 * i, 4, view.box);
  std::copy_n(b.window + 4 * i, 4, view.window);
  std::copy_n(b.size + 2 * i, 2, view.size);
  std::copy_n(b.rect + 4 * i, 4, view.rect);
  view.hflip = b.hflip[i];
  view.vflip = b.vflip[i];
  return decode_image(scratch, source, view, b.options, b.out, i, message);
}

}  // namespace

void ForkSafeLock::lock() noexcept {
  const int process = process_id();
  for (;;) {
    int holder = 0;
    if (holder_.compare_exchange_weak(holder, process, std::memory_order_acquire)) return;
    const bool dead = holder != 0 && holder != process;
    if (dead && holder_.compare_exchange_weak(holder, process, std::memory_order_acquire)) return;
    std::this_thread::yield();
  }
}

Pool::Pool(int threads, const Kernels& kernels) : threads_(std::max(threads, 0)), kernels_(kernels) {}

Pool::~Pool() { stop(); }

void Pool::work(std::shared_ptr<State> state, const Kernels& kernels) {
  Scratch scratch(kernels);
  char message[kMessageSize];
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->wake.wait(lock, [&] { return state->stopping || !state->queue.empty(); });
    if (state->queue.empty()) return;
    Task& task = *state->queue.front();
    const int64_t i = task.next++;
    if (task.next == task.batch->count) state->queue.pop_front();
    lock.unlock();
    const Status status = decode_one(scratch, *task.batch, i, message);
    lock.lock();
    if (status != kOk) task.failures.push_back({i, status, message});
    if (++task.done == task.batch->count) task.finished.notify_one();
  }
}

std::shared_ptr<Pool::State> Pool::start() const {
  auto state = std::make_shared<State>();
  try {
    for (int i = 0; i < threads_; ++i) state->threads.emplace_back(work, state, std::cref(kernels_));
  } catch (...) {
    state->end();
    throw;
  }
  return state;
}

std::shared_ptr<Pool::State> Pool::living_state() {
  std::lock_guard<ForkSafeLock> guard(lock_);
  if (process_ != process_id()) {
    // First use, or a child after a fork: the parent's state is left as it is (never destroyed: its threads do not exist
    // here, and nobody may be left who unlocks its mutex).
    state_ = nullptr;
    process_ = process_id();
  }
  if (!state_) state_ = new std::shared_ptr<State>(start());
  return *state_;
}

std::vector<Failure> Pool::run(const Batch& batch) {
  if (batch.count == 0) return {};
  if (threads_ == 0) return run_here(batch);
  Task task;
  task.batch = &batch;
  task.failures.reserve(static_cast<size_t>(batch.count));
  for (;;) {
    const std::shared_ptr<State> state = living_state();
    std::unique_lock<std::mutex> lock(state->mutex);
    if (state->stopping) continue;  // stopped between the two lines: take a new one
    state->queue.push_back(&task);
    state->wake.notify_all();
    task.finished.wait(lock, [&] { return task.done == batch.count; });
    break;
  }
  std::sort(task.failures.begin(), task.failures.end(),
            [](const Failure& a, const Failure& b) { return a.index < b.index; });
  return std::move(task.failures);
}

std::vector<Failure> Pool::run_here(const Batch& batch) {
  std::lock_guard<std::mutex> guard(here_);
  if (!own_) own_ = std::make_unique<Scratch>(kernels_);
  std::vector<Failure> failures;
  char message[kMessageSize];
  for (int64_t i = 0; i < batch.count; ++i) {
    const Status status = decode_one(*own_, batch, i, message);
    if (status != kOk) failures.push_back({i, status, message});
  }
  return failures;
}

void Pool::stop() {
  std::shared_ptr<State>* ended = nullptr;
  {
    std::lock_guard<ForkSafeLock> guard(lock_);
    if (process_ == process_id()) ended = state_;
    state_ = nullptr;
  }
  if (!ended) return;
  (*ended)->end();
  delete ended;
}

}  // namespace fastdata
