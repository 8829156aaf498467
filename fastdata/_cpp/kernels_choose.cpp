// Which set of kernels this processor can run.
#include <cstring>

#include "kernels.hpp"
#include "kernels_x86.hpp"

namespace fastdata {

const Kernels* kernels_by_name(const char* name) {
  if (std::strcmp(name, "generic") == 0) return &generic_kernels();
#if FASTDATA_X86
  if (std::strcmp(name, "avx2") == 0 && has_avx2()) return &avx2_kernels();
  if (std::strcmp(name, "avx512") == 0 && has_avx512()) return &avx512_kernels();
#endif
  return nullptr;
}

const Kernels& best_kernels() {
  for (const char* name : {"avx512", "avx2"}) {
    if (const Kernels* kernels = kernels_by_name(name)) return *kernels;
  }
  return generic_kernels();
}

}  // namespace fastdata
