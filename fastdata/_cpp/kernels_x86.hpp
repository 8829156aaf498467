// Kernels for x86-64; the file is empty elsewhere.
#pragma once

#include "kernels.hpp"

#if (defined(__x86_64__) || defined(_M_X64)) && (defined(__GNUC__) || defined(__clang__))
#define FASTDATA_X86 1
#else
#define FASTDATA_X86 0
#endif

#if FASTDATA_X86
namespace fastdata {
bool has_avx2();
bool has_avx512();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
}  // namespace fastdata
#endif
