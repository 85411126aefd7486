// The same normals as vsdn.sde.noise_at: Threefry-2x32 bits of (series' key; step, path), sixteen bits a normal.
#pragma once
#include "buffer.h"
#include "vectors.h"

namespace VSDN_ISA {

constexpr int kWords = VSDN_BYTES / 4;
typedef uint32_t words __attribute__((vector_size(VSDN_BYTES)));

inline words rotate(words x, int by) { return (x << by) | (x >> (32 - by)); }

// 20 rounds of Threefry-2x32 (Salmon et al. 2011).
inline void threefry(words key0, words key1, words& x0, words& x1) {
  const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  words keys[3] = {key0, key1, key0 ^ key1 ^ 0x1BD11BDAu};
  x0 += keys[0], x1 += keys[1];
#pragma GCC unroll 5
  for (uint32_t group = 0; group < 5; ++group) {
#pragma GCC unroll 4
    for (int round = 0; round < 4; ++round) {
      x0 += x1;
      x1 = rotate(x1, rotations[group % 2][round]) ^ x0;
    }
    x0 += keys[(group + 1) % 3], x1 += keys[(group + 2) % 3] + (group + 1);
  }
}

// Draws the normals of some rows (a path of a series each), step by step.
template <class T>
class Noise {
 public:
  const int stride;  // of a row of normals: four whole groups, and no less than whole registers

  Noise(const float* table, int rows, int latent)
      : stride(padded<T>(4 * ((latent + 3) / 4))), table(table), rows(rows), latent(latent), groups((latent + 3) / 4),
        key0(rows * groups + kWords), key1(rows * groups + kWords), place(rows * groups + kWords) {}

  void seed(int row, const uint32_t* key, int path) {
    for (int group = 0, at = row * groups; group < groups; ++group, ++at)
      key0[at] = key[0], key1[at] = key[1], place[at] = path * groups + group;
  }

  void draw(uint32_t step, T* eps) const {
    uint32_t bits[2][kWords];
    for (int at = 0, row = 0, group = 0; at < rows * groups; at += kWords) {
      words k0 = read(key0 + at), k1 = read(key1 + at), x0 = words{} + step, x1 = read(place + at);
      threefry(k0, k1, x0, x1);
      std::memcpy(bits[0], &x0, sizeof x0), std::memcpy(bits[1], &x1, sizeof x1);
      const int count = rows * groups - at < kWords ? rows * groups - at : kWords;
      for (int lane = 0; lane < count; ++lane) {
        T* to = eps + row * stride + group;
        to[0] = table[bits[0][lane] >> 16], to[groups] = table[bits[0][lane] & 0xFFFF];
        to[2 * groups] = table[bits[1][lane] >> 16], to[3 * groups] = table[bits[1][lane] & 0xFFFF];
        if (++group == groups) group = 0, ++row;
      }
    }
    for (int row = 0; row < rows; ++row)
      for (int l = latent; l < 4 * groups; ++l) eps[row * stride + l] = 0;
  }

 private:
  const float* table;  // the quantiles of 2^16 levels
  const int rows, latent, groups;  // a row takes groups of four normals
  Buffer<uint32_t> key0, key1, place;  // one a row and group

  static words read(const uint32_t* from) {
    words v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
};

}  // namespace VSDN_ISA
