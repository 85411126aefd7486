// The Euler-Maruyama loop of vsdn.sde.posterior_paths for a block of paths, and its gradient from the stored states.
#pragma once
#include "arguments.h"
#include "buffer.h"
#include "noise.h"
#include "products.h"

namespace VSDN_ISA {

using vsdn::Gradients;
using vsdn::Inputs;
using vsdn::Outputs;

// A series' numbers at one step, shared by its paths.
template <class T>
struct Moment {
  T dt, root;                                        // root: of dt
  const T *posterior, *prior, *diffusion, *inverse;  // contexts, embedded; inverse: of the diffusion
};

// Some paths that walk together, so few that their states and activations stay in the nearest caches. One line a path,
// its features padded to whole registers; the padding of every state, noise, drift and cotangent is zero.
// A is the drift network's activation.
template <class T, class A>
class Block {
 public:
  Block(const Inputs<T>& in, int first_path, int end_path)
      : in(in), steps(in.sizes.steps), paths(in.sizes.paths), num_rows(in.sizes.rows), L(in.sizes.latent),
        H(in.sizes.width), C(in.sizes.context), Lp(padded<T>(L)), Hp(padded<T>(H)), Cp(padded<T>(C)),
        first_path(first_path), size(end_path - first_path), first_series(first_path / paths),
        series((end_path - 1) / paths - first_series + 1), series_of(size), row(series), contexts(2 * series * Cp),
        embedded(2 * series * Hp), diffusion(series * Lp), inverse(series * Lp), moments(series), first_bias(Hp),
        bias(Lp), rate(Lp), embed(in.from_context, C, H, 1, C), into_hidden(in.from_state, L, H, 1, L),
        into_latent(in.out, H, L, 1, H), x(size * Lp), z(size * Hp), act(size * Hp), act_apart(size * Hp),
        drift(size * Lp), apart(size * Lp) {
    for (int p = 0; p < size; ++p) series_of[p] = (first_path + p) / paths - first_series;
    for (int i = 0; i < series * Lp; ++i) diffusion[i] = 1;  // of padding, which has no noise
    for (int s = 0; s < series; ++s)
      moments[s] = {0, 0, embedded + s * Hp, embedded + (series + s) * Hp, diffusion + s * Lp, inverse + s * Lp};
    if (C > 0) copy<T>(in.first_bias, first_bias, H);
    copy<T>(in.bias, bias, L);
    copy<T>(in.rate, rate, L);
  }

  // States along the path; its KL and log-ratio unless it is the prior's, whose context is then `posterior`.
  void forward(const uint32_t* keys, uint32_t first_step, const float* table, T* states, const Outputs<T>& out,
               bool prior_alone) {
    Noise<T> noise(table, size, L);
    Buffer<T> eps(size_t(size) * noise.stride), kl(size * lanes), log_ratio(size * lanes);
    for (int p = 0; p < size; ++p) {
      noise.seed(p, keys + 2 * (first_series + series_of[p]), (first_path + p) % paths);
      copy<T>(in.x0 + size_t(first_path + p) * L, x + p * Lp, L);
    }
    write_states(0, states, out);
    for (int n = 0; n < steps; ++n) {
      if (read_moments(n, prior_alone)) {
        find_drifts(prior_alone, [&](int p) {
          if (is_first_of_series(p)) expect_moments(series_of[p], n + 2);
          expect(states + at_point(p, n + 3), L);
        });
        noise.draw(first_step + n, eps);
        for (int p = 0; p < size; ++p)
          move(p, moments[series_of[p]], eps + p * noise.stride, kl + p * lanes, log_ratio + p * lanes, prior_alone);
      }
      write_states(n + 1, states, out);
    }
    for (int p = 0; p < size; ++p) {
      out.kl[first_path + p] = sum<T>(load(kl + p * lanes));
      out.log_ratio[first_path + p] = sum<T>(load(log_ratio + p * lanes));
    }
  }

  // The gradients of everything, from the states that `forward` wrote; the block's series must be whole.
  void backward(const T* states, const Outputs<const T>& cotangents, const Gradients<T>& grad) {
    Adjoint own(*this);
    for (int s = 0; s < series; ++s) row[s] = num_rows - 1;
    for (int p = 0; p < size; ++p) copy<T>(states + at_point(p, steps), own.next + p * Lp, L);
    take_cotangents(steps, cotangents, own);
    for (int n = steps - 1; n >= 0; --n) {
      if (read_moments(n, false)) {
        for (int p = 0; p < size; ++p) copy<T>(states + at_point(p, n), x + p * Lp, L);
        find_drifts(false, [&](int p) {
          if (is_first_of_series(p)) expect_moments(series_of[p], n - 2), expect_gradients(series_of[p], n - 2, grad);
          expect(states + at_point(p, n - 2), L);
        });
        for (int s = 0; s < series; ++s) unmove(s, n, cotangents, own, grad);
        pull_back(n, own, grad);
      } else {
        stand_still(n, grad);
      }
      take_cotangents(n, cotangents, own);
    }
    finish(own, grad);
  }

 private:
  static constexpr int lanes = Lanes<T>::count;

  // Cotangents, named as what they belong to.
  struct Adjoint {
    explicit Adjoint(const Block& b)
        : from_hidden(b.in.from_state, b.H, b.L, b.L, 1), from_latent(b.in.out, b.L, b.H, b.H, 1),
          from_embedded(b.in.from_context, b.H, b.C, b.C, 1), x(b.size * b.Lp), next(b.size * b.Lp),
          drift(b.size * b.Lp), apart(b.size * b.Lp), act(b.size * b.Hp), act_apart(b.size * b.Hp),
          embedded(2 * b.series * b.Hp), contexts(2 * b.series * b.Cp), diffusion(b.Lp), from_state(b.H * b.Lp),
          from_context(b.H * b.Cp), first_bias(b.Hp), out(b.H * b.Lp), bias(b.Lp), rate(b.Lp) {}
    Panels<T> from_hidden, from_latent, from_embedded;
    Buffer<T> x, next, drift, apart, act, act_apart, embedded, contexts, diffusion;  // next: no cotangent, but x at n + 1
    Buffer<T> from_state, from_context, first_bias, out, bias, rate;
  };

  const Inputs<T>& in;
  const int steps, paths, num_rows, L, H, C, Lp, Hp, Cp;  // features: latent, hidden, context; with padding
  const int first_path, size, first_series, series;
  Buffer<int> series_of, row;  // row: the next of each series that is due
  Buffer<T> contexts, embedded, diffusion, inverse;  // of all series at one step; posterior contexts, then the prior's
  Buffer<Moment<T>> moments;
  Buffer<T> first_bias, bias, rate;
  Panels<T> embed, into_hidden, into_latent;
  Buffer<T> x, z, act, act_apart, drift, apart;

  static void add(T* to, vec<T> v) { store(to, load(to) + v); }

  // Tells the processor what will be wanted. Paths lie far apart in memory, more of them than it foresees by itself; its
  // other work hides the wait if not all are asked for at once. An address outside the array does no harm.
  static void expect(const T* at, int count) {
    for (int c = 0; c < count; c += 64 / sizeof(T)) __builtin_prefetch(at + c);
    __builtin_prefetch(at + count - 1);
    asm volatile("");  // or GCC finds the function without effect and drops its calls
  }

  void expect_moments(int s, int n) const {
    const size_t step = step_of(s, n), width = C > 0 ? C : H;
    expect(in.prior + step * width, width), expect(in.posterior + step * width, width);
    expect(in.diffusion + step * L, L);
  }

  void expect_gradients(int s, int n, const Gradients<T>& grad) const {
    const size_t step = step_of(s, n), width = C > 0 ? C : H;
    expect(grad.prior + step * width, width), expect(grad.posterior + step * width, width);
    expect(grad.diffusion + step * L, L);
  }

  bool is_first_of_series(int p) const { return p == 0 || series_of[p] != series_of[p - 1]; }

  size_t step_of(int s, int n) const { return size_t(first_series + s) * steps + n; }

  // Where a path's state at point n lies, and where it lies among the states at rows.
  size_t at_point(int p, int n) const { return (size_t(first_path + p) * (steps + 1) + n) * L; }
  size_t at_row(int p, int row) const { return (size_t(first_path + p) * num_rows + row) * L; }

  int point_of(int s, int row) const { return in.rows[size_t(first_series + s) * num_rows + row]; }

  // The numbers of step n; false if no series moves in it, as in padding.
  bool read_moments(int n, bool prior_alone) {
    bool moves = false;
    for (int s = 0; s < series; ++s) {
      moments[s].dt = in.dt[step_of(s, n)], moments[s].root = std::sqrt(moments[s].dt);
      moves |= moments[s].dt != 0;
    }
    if (!moves) return false;
    T* to = C > 0 ? contexts : embedded;
    const int width = C > 0 ? C : H, stride = C > 0 ? Cp : Hp;
    for (int s = 0; s < series; ++s) {
      const size_t step = step_of(s, n);
      copy<T>(in.posterior + step * width, to + s * stride, width);
      if (!prior_alone) copy<T>(in.prior + step * width, to + (series + s) * stride, width);
      copy<T>(in.diffusion + step * L, diffusion + s * Lp, L);
      for (int c = 0; c < Lp; c += lanes) store(inverse + s * Lp + c, reciprocal(load(diffusion + s * Lp + c)));
    }
    if (C == 0) return true;
    const int count = prior_alone ? series : 2 * series;
    for (int i = 0; i < count; ++i) copy<T>(first_bias, embedded + i * Hp, Hp);
    multiply<T>(contexts, Cp, count, embed, embedded, Hp, true);
    return true;
  }

  // drift = H_Q and apart = H_Q - H_G of every path at its x; act_apart is what `apart` is the product of.
  // `before` is called for each path on the way.
  template <class Before>
  void find_drifts(bool prior_alone, Before before) {
    multiply<T>(x, Lp, size, into_hidden, z, Hp);
    for (int p = 0; p < size; ++p) {
      const Moment<T>& at = moments[series_of[p]];
      before(p);
      for (int h = p * Hp, c = 0; c < Hp; c += lanes, h += lanes) {
        const vec<T> hidden = load(z + h), q = A::value(hidden + load(at.posterior + c));
        store(act + h, q);
        if (!prior_alone) store(act_apart + h, q - A::value(hidden + load(at.prior + c)));
      }
    }
    multiply<T>(act, Hp, size, into_latent, drift, Lp);
    if (!prior_alone) multiply<T>(act_apart, Hp, size, into_latent, apart, Lp);
    for (int p = 0; p < size; ++p)
      for (int l = p * Lp, c = 0; c < Lp; c += lanes, l += lanes)
        add(drift + l, load(bias + c) - load(rate + c) * load(x + l));
  }

  // An Euler-Maruyama step of one path, and what it adds to the path's KL and log-ratio, lane by lane.
  void move(int p, const Moment<T>& at, const T* eps, T* kl, T* log_ratio, bool prior_alone) {
    for (int l = p * Lp, c = 0; c < Lp; c += lanes, l += lanes) {
      const vec<T> dw = at.root * load(eps + c);
      add(x + l, load(drift + l) * at.dt + load(at.diffusion + c) * dw);
      if (prior_alone) continue;
      const vec<T> u = load(apart + l) * load(at.inverse + c);  // Girsanov kernel
      const vec<T> cost = T(0.5) * at.dt * u * u;
      add(kl, cost);
      add(log_ratio, cost + u * dw);
    }
  }

  // `move` in reverse for a series' paths: the cotangents of x, drift, apart and diffusion. The noise need not be
  // drawn again: it is what the states moved by beyond the drift.
  void unmove(int s, int n, const Outputs<const T>& cotangents, Adjoint& own, const Gradients<T>& grad) {
    const Moment<T>& at = moments[s];
    const T *g_kl = cotangents.kl + first_path, *g_log_ratio = cotangents.log_ratio + first_path;
    for (int c = 0; c < Lp; c += lanes) {
      const vec<T> inv = load(at.inverse + c), leak = load(rate + c);
      vec<T> g_sigma{}, g_bias{}, g_rate{};
      for (int p = s * paths, l = p * Lp + c; p < (s + 1) * paths; ++p, l += Lp) {
        const T g_ratio = g_log_ratio[p], g_cost = g_kl[p] + g_ratio;
        const vec<T> g = load(own.x + l), now = load(x + l), b = load(drift + l), u = load(apart + l) * inv;
        const vec<T> dw = (load(own.next + l) - now - b * at.dt) * inv;
        const vec<T> g_u = g_cost * at.dt * u + g_ratio * dw, g_b = g * at.dt;
        g_sigma += g * dw - g_u * u * inv;
        g_bias += g_b;
        g_rate -= g_b * now;
        store(own.x + l, g - leak * g_b);
        store(own.apart + l, g_u * inv);
        store(own.drift + l, g_b);
        store(own.next + l, now);
      }
      store(own.diffusion + c, g_sigma);
      add(own.bias + c, g_bias);
      add(own.rate + c, g_rate);
    }
    copy<T>(own.diffusion, grad.diffusion + step_of(s, n) * L, L);
  }

  // `find_drifts` and `read_moments` in reverse: the cotangents of weights and contexts, and of x once more.
  void pull_back(int n, Adjoint& own, const Gradients<T>& grad) {
    gather<T>(act, Hp, H, own.drift, Lp, size, own.out);
    gather<T>(act_apart, Hp, H, own.apart, Lp, size, own.out);
    multiply<T>(own.drift, Lp, size, own.from_latent, own.act, Hp);
    multiply<T>(own.apart, Lp, size, own.from_latent, own.act_apart, Hp);
    for (int s = 0; s < series; ++s) {
      const Moment<T>& at = moments[s];
      for (int c = 0; c < Hp; c += lanes) {
        const vec<T> to_q = load(at.posterior + c), to_p = load(at.prior + c);
        vec<T> g_posterior{}, g_prior{};
        for (int p = s * paths, h = p * Hp + c; p < (s + 1) * paths; ++p, h += Hp) {
          const vec<T> hidden = load(z + h), at_q = load(act + h), at_p = at_q - load(act_apart + h);
          const vec<T> g_apart = load(own.act_apart + h);
          const vec<T> g_q = (load(own.act + h) + g_apart) * A::slope(hidden + to_q, at_q);
          const vec<T> g_p = -g_apart * A::slope(hidden + to_p, at_p);
          g_posterior += g_q, g_prior += g_p;
          store(own.act + h, g_q + g_p);
        }
        store(own.embedded + s * Hp + c, g_posterior);
        store(own.embedded + (series + s) * Hp + c, g_prior);
      }
    }
    gather<T>(own.act, Hp, H, x, Lp, size, own.from_state);
    multiply<T>(own.act, Hp, size, own.from_hidden, own.x, Lp, true);
    if (C > 0) unembed(own);
    const T* from = C > 0 ? own.contexts : own.embedded;
    const int width = C > 0 ? C : H, stride = C > 0 ? Cp : Hp;
    for (int s = 0; s < series; ++s) {
      copy<T>(from + s * stride, grad.posterior + step_of(s, n) * width, width);
      copy<T>(from + (series + s) * stride, grad.prior + step_of(s, n) * width, width);
    }
  }

  void unembed(Adjoint& own) {
    multiply<T>(own.embedded, Hp, 2 * series, own.from_embedded, own.contexts, Cp);
    gather<T>(own.embedded, Hp, H, contexts, Cp, 2 * series, own.from_context);
    for (int i = 0; i < 2 * series; ++i)
      for (int c = 0; c < Hp; c += lanes) add(own.first_bias + c, load(own.embedded + i * Hp + c));
  }

  // A step in which nothing moves teaches nothing.
  void stand_still(int n, const Gradients<T>& grad) const {
    const int width = C > 0 ? C : H;
    for (int s = 0; s < series; ++s) {
      std::memset(grad.prior + step_of(s, n) * width, 0, width * sizeof(T));
      std::memset(grad.posterior + step_of(s, n) * width, 0, width * sizeof(T));
      std::memset(grad.diffusion + step_of(s, n) * L, 0, L * sizeof(T));
    }
  }

  // What was gathered over all steps: the cotangents of the first states, and those of the weights.
  void finish(const Adjoint& own, const Gradients<T>& grad) const {
    for (int p = 0; p < size; ++p) copy<T>(own.x + p * Lp, grad.x0 + size_t(first_path + p) * L, L);
    for (int l = 0; l < L; ++l) grad.bias[l] += own.bias[l], grad.rate[l] += own.rate[l];
    for (int h = 0; h < H; ++h) {
      for (int l = 0; l < L; ++l) {
        grad.from_state[h * L + l] += own.from_state[h * Lp + l];
        grad.out[l * H + h] += own.out[h * Lp + l];
      }
      for (int c = 0; c < C; ++c) grad.from_context[h * C + c] += own.from_context[h * Cp + c];
      if (C > 0) grad.first_bias[h] += own.first_bias[h];
    }
  }

  // The states at point n, and once more among those asked for.
  void write_states(int n, T* states, const Outputs<T>& out) {
    for (int p = 0; p < size; ++p) copy<T>(x + p * Lp, states + at_point(p, n), L);
    for (int p = 0, s = 0; p < size; ++s) {
      const int end = p + count_of(s);
      for (; row[s] < num_rows && point_of(s, row[s]) == n; ++row[s])
        for (int q = p; q < end; ++q) copy<T>(x + q * Lp, out.at_rows + at_row(q, row[s]), L);
      p = end;
    }
  }

  // What the states at point n are held to account for themselves.
  void take_cotangents(int n, const Outputs<const T>& cotangents, Adjoint& own) {
    for (int s = 0; s < series; ++s)
      for (; row[s] >= 0 && point_of(s, row[s]) == n; --row[s])
        for (int p = s * paths; p < (s + 1) * paths; ++p) {
          const T* from = cotangents.at_rows + at_row(p, row[s]);
          for (int l = 0; l < L; ++l) own.x[p * Lp + l] += from[l];
        }
  }

  // How many of the block's paths are of its series s: the first and the last may have others elsewhere.
  int count_of(int s) const {
    const int begin = (first_series + s) * paths, end = begin + paths, last = first_path + size;
    return (end < last ? end : last) - (begin > first_path ? begin : first_path);
  }
};

template <class T, class A>
void forward_paths(const Inputs<T>& in, const uint32_t* keys, uint32_t first_step, const float* table, T* states,
                   const Outputs<T>& out, bool prior_alone, int first_path, int end_path) {
  Block<T, A>(in, first_path, end_path).forward(keys, first_step, table, states, out, prior_alone);
}

template <class T, class A>
void backward_paths(const Inputs<T>& in, const T* states, const Outputs<const T>& cotangents, const Gradients<T>& grad,
                    int first_path, int end_path) {
  Block<T, A>(in, first_path, end_path).backward(states, cotangents, grad);
}

template <class T>
vsdn::Kernel<T> kernel(vsdn::Activation activation) {
  switch (activation) {
    case vsdn::kRelu: return {forward_paths<T, Relu>, backward_paths<T, Relu>};
    case vsdn::kSilu: return {forward_paths<T, Silu>, backward_paths<T, Silu>};
    default: return {forward_paths<T, Tanh>, backward_paths<T, Tanh>};
  }
}

template vsdn::Kernel<float> kernel<float>(vsdn::Activation);
template vsdn::Kernel<double> kernel<double>(vsdn::Activation);

}  // namespace VSDN_ISA
