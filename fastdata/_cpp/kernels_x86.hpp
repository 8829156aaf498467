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
// Of both sets: wider registers would wait for the picture's bytes all the same.
void sums_avx2(const uint8_t* data, size_t blocks, uint32_t* value, uint32_t* square);
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
}  // namespace fastdata
#endif
