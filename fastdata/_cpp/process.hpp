// The one thing that the core asks of the operating system itself; all else is standard C++ and libjpeg.
#pragma once

#if defined(_WIN32)
#include <process.h>
#else
#include <unistd.h>
#endif

namespace fastdata {

// Never 0. A child made by fork has another one than its parent; where there is no fork, it never changes.
inline int process_id() noexcept {
#if defined(_WIN32)
  return _getpid();
#else
  return static_cast<int>(getpid());
#endif
}

}  // namespace fastdata
