// Products of small matrices: a tile of rows and columns stays in registers while the inner dimension runs by.
#pragma once
#include "buffer.h"
#include "vectors.h"

namespace VSDN_ISA {

constexpr int kTileRows = VSDN_BYTES == 64 ? 13 : 6;  // of two registers each: as many as the processor has room for

// x(row, k), of a matrix (rows, inner) or of the transpose of one (inner, rows), with lines of `stride` entries.
template <class T, bool transposed>
struct Factor {
  const T* at;
  int stride;

  T operator()(int row, int k) const { return at[transposed ? k * stride + row : row * stride + k]; }
  void advance(int rows) { at += transposed ? rows : rows * stride; }
};

template <int R, int V, class T, class X>
inline void tile(X x, const T* w, int w_stride, int inner, T* y, int y_stride, bool add) {
  constexpr int lanes = Lanes<T>::count;
  vec<T> sums[R][V];
#pragma GCC unroll 13
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sums[r][v] = add ? load(y + r * y_stride + v * lanes) : vec<T>{};
  for (int k = 0; k < inner; ++k) {
    vec<T> weights[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) weights[v] = load(w + k * w_stride + v * lanes);
#pragma GCC unroll 13
    for (int r = 0; r < R; ++r) {
      const vec<T> each = fill(x(r, k));
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sums[r][v] += each * weights[v];
    }
  }
#pragma GCC unroll 13
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) store(y + r * y_stride + v * lanes, sums[r][v]);
}

// All rows of V registers' width, in tiles of nearly equal height: a low tile would wait for its own sums.
template <int V, class T, class X>
inline void column(X x, int rows, const T* w, int w_stride, int inner, T* y, int y_stride, bool add) {
  const int tiles = (rows + kTileRows - 1) / kTileRows;
  for (int number = 0, row = 0; number < tiles; ++number) {
    const int end = rows * (number + 1) / tiles;
    switch (end - row) {
#define VSDN_TILE(R) \
  case R: tile<R, V>(x, w, w_stride, inner, y, y_stride, add); break;
      VSDN_TILE(1) VSDN_TILE(2) VSDN_TILE(3) VSDN_TILE(4) VSDN_TILE(5) VSDN_TILE(6)
#if VSDN_BYTES == 64
      VSDN_TILE(7) VSDN_TILE(8) VSDN_TILE(9) VSDN_TILE(10) VSDN_TILE(11) VSDN_TILE(12) VSDN_TILE(13)
#endif
#undef VSDN_TILE
    }
    x.advance(end - row), y += (end - row) * y_stride, row = end;
  }
}

// Weights in panels of two registers' width, one after another, so that a tile reads memory in order.
template <class T>
class Panels {
 public:
  static constexpr int width = 2 * Lanes<T>::count;
  const int inner, columns;  // columns: a whole number of registers
  Buffer<T> at;

  // w(k, c) = from[k * inner_stride + c * column_stride]
  Panels(const T* from, int inner, int columns, int inner_stride, int column_stride)
      : inner(inner), columns(padded<T>(columns)), at(inner * padded<T>(columns)) {
    T* to = at;
    for (int first = 0; first < this->columns; first += width)
      for (int k = 0; k < inner; ++k)
        for (int c = first; c < first + width && c < this->columns; ++c)
          *to++ = c < columns ? from[k * inner_stride + c * column_stride] : T(0);
  }
};

// y[rows, columns] = (y +) x[rows, inner] w[inner, columns]
template <class T>
inline void multiply(const T* x, int x_stride, int rows, const Panels<T>& w, T* y, int y_stride, bool add = false) {
  constexpr int width = Panels<T>::width;
  const Factor<T, false> factor{x, x_stride};
  const T* panel = w.at;
  int c = 0;
  for (; c + width <= w.columns; c += width, panel += w.inner * width)
    column<2>(factor, rows, panel, width, w.inner, y + c, y_stride, add);
  if (c < w.columns) column<1>(factor, rows, panel, width / 2, w.inner, y + c, y_stride, add);
}

// y[features, columns] += x[rows, features]' z[rows, columns]: a weight's gradient, gathered over rows.
template <class T>
inline void gather(const T* x, int x_stride, int features, const T* z, int columns, int rows, T* y) {
  constexpr int width = Panels<T>::width;
  const Factor<T, true> factor{x, x_stride};
  int c = 0;
  for (; c + width <= columns; c += width) column<2>(factor, features, z + c, columns, rows, y + c, columns, true);
  if (c < columns) column<1>(factor, features, z + c, columns, rows, y + c, columns, true);
}

}  // namespace VSDN_ISA
