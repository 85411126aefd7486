// What the kernel is handed: arrays of a batch of series as JAX lays them out, features last.
#pragma once
#include <cstdint>

namespace vsdn {

struct Sizes {
  int series, paths, steps, latent, width;
  int context;  // features of a context; 0 if it is embedded already
  int rows;     // points of a series at which its states are asked for
};

enum Activation { kTanh, kRelu, kSilu };  // as vsdn.fused numbers them

// The first states (one a path), vsdn.sde.Steps, the points asked for in ascending order, and the drift
// H = out act(from_state x + from_context c + first_bias) + bias - rate x.
template <class T>
struct Inputs {
  Sizes sizes;
  const T *x0, *dt, *prior, *posterior, *diffusion;
  const T *from_state, *from_context, *first_bias, *out, *bias, *rate;
  const int32_t* rows;
};

template <class T>
struct Outputs {
  T *at_rows, *kl, *log_ratio;
};

// Of all that `Inputs` holds but the steps' lengths. Those of weights are added to what is there.
template <class T>
struct Gradients {
  T *x0, *prior, *posterior, *diffusion;
  T *from_state, *from_context, *first_bias, *out, *bias, *rate;
};

// The loop as compiled for one kind of processor, for some paths: number = series * paths + path.
template <class T>
struct Kernel {
  void (*forward)(const Inputs<T>&, const uint32_t* keys, uint32_t first_step, const float* table, T* states,
                  const Outputs<T>&, bool prior_alone, int first_path, int end_path);
  void (*backward)(const Inputs<T>&, const T* states, const Outputs<const T>& cotangents, const Gradients<T>&,
                   int first_path, int end_path);
};

}  // namespace vsdn

namespace vsdn_any { template <class T> vsdn::Kernel<T> kernel(vsdn::Activation); }
namespace vsdn_avx2 { template <class T> vsdn::Kernel<T> kernel(vsdn::Activation); }
namespace vsdn_avx512 { template <class T> vsdn::Kernel<T> kernel(vsdn::Activation); }
