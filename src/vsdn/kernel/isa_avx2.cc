// For x86 processors with AVX2, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,fma")
#define VSDN_ISA vsdn_avx2
#define VSDN_BYTES 32
#include "paths.h"
#endif
