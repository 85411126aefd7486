// For x86 processors with AVX-512, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")
#define VSDN_ISA vsdn_avx512
#define VSDN_BYTES 64
#include "paths.h"
#endif
