// The Python module: the loop as calls of XLA's foreign-function interface, spread over its threads.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "arguments.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace vsdn {
namespace {

constexpr int kBlockPaths = 60;  // paths that walk together
constexpr int kMaxTasks = 64;  // each has weight gradients of its own, added up in a fixed order

// Kinds of processors that there is code for, the quickest first, and whether this is one.
struct Processor {
  const char* name;
  bool here;
  Kernel<float> (*float32)(Activation);
  Kernel<double> (*float64)(Activation);
};

const Processor processors[] = {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    {"avx512",
     __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl"),
     vsdn_avx512::kernel<float>, vsdn_avx512::kernel<double>},
    {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), vsdn_avx2::kernel<float>,
     vsdn_avx2::kernel<double>},
#endif
    {"any", true, vsdn_any::kernel<float>, vsdn_any::kernel<double>}};

const Processor* quickest() {
  const Processor* each = processors;
  while (!each->here) ++each;
  return each;
}

std::atomic<const Processor*> chosen{quickest()};

template <class T>
Kernel<T> choose(Activation activation) {
  if constexpr (sizeof(T) == sizeof(float)) return chosen.load()->float32(activation);
  else return chosen.load()->float64(activation);
}

// Runs work(0) ... work(count - 1) on the pool and on the caller, who waits for none that has not begun.
void run_all(ffi::ThreadPool& pool, int count, std::function<void(int)> work) {
  struct Shared {
    std::function<void(int)> work;
    int count;
    std::atomic<int> next{0};
    int done = 0;
    std::exception_ptr error;
    std::mutex mutex;
    std::condition_variable all_done;

    void help() {
      for (int task; (task = next.fetch_add(1)) < count;) {
        std::exception_ptr thrown;
        try {
          work(task);
        } catch (...) {
          thrown = std::current_exception();
        }
        std::lock_guard<std::mutex> lock(mutex);
        if (thrown) error = thrown;
        if (++done == count) all_done.notify_all();
      }
    }
  };
  auto shared = std::make_shared<Shared>();
  shared->work = std::move(work), shared->count = count;
  const int helpers = std::min<int64_t>(pool.num_threads(), count) - 1;
  for (int i = 0; i < helpers; ++i) pool.Schedule([shared] { shared->help(); });
  shared->help();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->all_done.wait(lock, [&] { return shared->done == count; });
  if (shared->error) std::rethrow_exception(shared->error);
}

// Where part number `part` of `parts` nearly equal ones begins.
int begin_of(int part, int parts, int total) { return static_cast<int>(int64_t(total) * part / parts); }

// How many parts of at most `largest` there are: an even number, so that two cores end together.
int parts_of(int total, int largest) {
  const int parts = (total + largest - 1) / largest;
  return parts <= 1 ? 1 : (parts + 1) / 2 * 2;
}

template <class Work>
ffi::Error guarded(Work work) {
  try {
    work();
    return ffi::Error::Success();
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string("vsdn's kernel: ") + error.what());
  }
}

template <ffi::DataType type>
using Argument = ffi::Buffer<type>;
template <ffi::DataType type>
using Result = ffi::Result<ffi::Buffer<type>>;

// The kernel's inputs as arrays of XLA's: first states, steps, weights, rows.
template <ffi::DataType type>
Inputs<ffi::NativeType<type>> inputs_of(const Argument<type>& x0, const Argument<type>& dt,
                                        const Argument<type>& prior, const Argument<type>& posterior,
                                        const Argument<type>& diffusion, const Argument<type>& from_state,
                                        const Argument<type>& from_context, const Argument<type>& first_bias,
                                        const Argument<type>& out, const Argument<type>& bias,
                                        const Argument<type>& rate, const Argument<ffi::S32>& rows) {
  const auto steps = dt.dimensions(), weights = from_state.dimensions();
  const Sizes sizes{int(steps[0]), int(x0.dimensions()[1]), int(steps[1]), int(weights[1]), int(weights[0]),
                    int(from_context.dimensions()[1]), int(rows.dimensions()[1])};
  return {sizes, x0.typed_data(), dt.typed_data(), prior.typed_data(), posterior.typed_data(), diffusion.typed_data(),
          from_state.typed_data(), from_context.typed_data(), first_bias.typed_data(), out.typed_data(),
          bias.typed_data(), rate.typed_data(), rows.typed_data()};
}

template <ffi::DataType type>
ffi::Error forward(ffi::ThreadPool pool, int64_t activation, bool prior_alone, Argument<type> x0,
                   Argument<type> dt, Argument<type> prior, Argument<type> posterior, Argument<type> diffusion,
                   Argument<type> from_state, Argument<type> from_context, Argument<type> first_bias,
                   Argument<type> out, Argument<type> bias, Argument<type> rate, Argument<ffi::S32> rows,
                   Argument<ffi::U32> keys, Argument<ffi::U32> first_step, Argument<ffi::F32> table,
                   Result<type> states, Result<type> at_rows, Result<type> kl, Result<type> log_ratio) {
  using T = ffi::NativeType<type>;
  return guarded([&] {
    const Inputs<T> in = inputs_of<type>(x0, dt, prior, posterior, diffusion, from_state, from_context,
                                         first_bias, out, bias, rate, rows);
    const Outputs<T> outputs{at_rows->typed_data(), kl->typed_data(), log_ratio->typed_data()};
    const Kernel<T> kernel = choose<T>(Activation(activation));
    const int count = in.sizes.series * in.sizes.paths, parts = parts_of(count, kBlockPaths);
    if (count == 0) return;
    run_all(pool, parts, [&](int part) {
      kernel.forward(in, keys.typed_data(), *first_step.typed_data(), table.typed_data(), states->typed_data(), outputs,
                     prior_alone, begin_of(part, parts, count), begin_of(part + 1, parts, count));
    });
  });
}

template <ffi::DataType type>
ffi::Error backward(ffi::ThreadPool pool, int64_t activation, Argument<type> x0, Argument<type> dt,
                    Argument<type> prior, Argument<type> posterior, Argument<type> diffusion,
                    Argument<type> from_state, Argument<type> from_context, Argument<type> first_bias,
                    Argument<type> out, Argument<type> bias, Argument<type> rate, Argument<ffi::S32> rows,
                    Argument<type> states, Argument<type> g_at_rows, Argument<type> g_kl, Argument<type> g_log_ratio,
                    Result<type> g_x0, Result<type> g_prior, Result<type> g_posterior,
                    Result<type> g_diffusion, Result<type> g_from_state, Result<type> g_from_context,
                    Result<type> g_first_bias, Result<type> g_out, Result<type> g_bias, Result<type> g_rate) {
  using T = ffi::NativeType<type>;
  return guarded([&] {
    const Inputs<T> in = inputs_of<type>(x0, dt, prior, posterior, diffusion, from_state, from_context,
                                         first_bias, out, bias, rate, rows);
    const Outputs<const T> cotangents{g_at_rows.typed_data(), g_kl.typed_data(), g_log_ratio.typed_data()};
    const Kernel<T> kernel = choose<T>(Activation(activation));
    const int series = in.sizes.series;
    const int blocks = parts_of(series, std::max(1, kBlockPaths / in.sizes.paths)), tasks = std::min(blocks, kMaxTasks);
    Result<type>* const weights[] = {&g_from_state, &g_from_context, &g_first_bias, &g_out, &g_bias, &g_rate};
    std::vector<size_t> starts{0};
    for (auto* each : weights) starts.push_back(starts.back() + (*each)->element_count());
    std::vector<T> partial(tasks * starts.back());
    if (series > 0) run_all(pool, tasks, [&](int task) {
      T* own = partial.data() + task * starts.back();
      const Gradients<T> grad{g_x0->typed_data(), g_prior->typed_data(), g_posterior->typed_data(),
                              g_diffusion->typed_data(), own + starts[0], own + starts[1], own + starts[2],
                              own + starts[3], own + starts[4], own + starts[5]};
      for (int block = begin_of(task, tasks, blocks); block < begin_of(task + 1, tasks, blocks); ++block)
        kernel.backward(in, states.typed_data(), cotangents, grad, begin_of(block, blocks, series) * in.sizes.paths,
                        begin_of(block + 1, blocks, series) * in.sizes.paths);
    });
    for (int which = 0; which < 6; ++which)
      for (size_t i = starts[which]; i < starts[which + 1]; ++i) {
        T total = 0;
        for (int task = 0; task < tasks; ++task) total += partial[task * starts.back() + i];
        (*weights[which])->typed_data()[i - starts[which]] = total;
      }
  });
}

template <ffi::DataType type>
auto forward_binding() {
  using A = Argument<type>;
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Attr<int64_t>("activation")
      .Attr<bool>("prior_alone")
      .Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()  // x0 and the steps
      .template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()
      .template Arg<Argument<ffi::S32>>()  // rows, after the weights
      .template Arg<Argument<ffi::U32>>()  // keys
      .template Arg<Argument<ffi::U32>>()  // the number of the first step
      .template Arg<Argument<ffi::F32>>()  // table
      .template Ret<A>().template Ret<A>().template Ret<A>().template Ret<A>();
}

template <ffi::DataType type>
auto backward_binding() {
  using A = Argument<type>;
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Attr<int64_t>("activation")
      .Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()  // x0 and the steps
      .template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()
      .template Arg<Argument<ffi::S32>>()  // rows, after the weights
      .template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()  // states, cotangents
      .template Ret<A>().template Ret<A>().template Ret<A>().template Ret<A>()  // x0 and the steps but dt
      .template Ret<A>().template Ret<A>().template Ret<A>().template Ret<A>().template Ret<A>().template Ret<A>();
}

XLA_FFI_DEFINE_HANDLER(forward_f32, forward<ffi::F32>, forward_binding<ffi::F32>());
XLA_FFI_DEFINE_HANDLER(forward_f64, forward<ffi::F64>, forward_binding<ffi::F64>());
XLA_FFI_DEFINE_HANDLER(backward_f32, backward<ffi::F32>, backward_binding<ffi::F32>());
XLA_FFI_DEFINE_HANDLER(backward_f64, backward<ffi::F64>, backward_binding<ffi::F64>());

PyObject* targets(PyObject*, PyObject*) {
  PyObject* named = PyDict_New();
  const auto put = [&](const char* name, XLA_FFI_Handler* handler) {
    PyObject* capsule = PyCapsule_New(reinterpret_cast<void*>(handler), nullptr, nullptr);
    PyDict_SetItemString(named, name, capsule);
    Py_DECREF(capsule);
  };
  put("forward_float32", forward_f32), put("forward_float64", forward_f64);
  put("backward_float32", backward_f32), put("backward_float64", backward_f64);
  return named;
}

PyObject* names(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (const Processor& each : processors)
    if (each.here) {
      PyObject* name = PyUnicode_FromString(each.name);
      PyList_Append(list, name);
      Py_DECREF(name);
    }
  return list;
}

PyObject* use(PyObject*, PyObject* name) {
  const char* wanted = PyUnicode_AsUTF8(name);
  if (wanted == nullptr) return nullptr;
  for (const Processor& each : processors)
    if (each.here && std::string(wanted) == each.name) {
      chosen = &each;
      Py_RETURN_NONE;
    }
  PyErr_Format(PyExc_ValueError, "this is no processor of kind %s", wanted);
  return nullptr;
}

PyMethodDef methods[] = {
    {"targets", targets, METH_NOARGS, "The calls by name, as capsules for jax.ffi.register_ffi_target."},
    {"processors", names, METH_NOARGS, "The kinds of processors whose code runs here, the quickest first."},
    {"use", use, METH_O, "Runs the code of this kind from now on; the quickest is the default."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "vsdn._kernel", "The SDE loop, fused.", -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace vsdn

PyMODINIT_FUNC PyInit__kernel() { return PyModule_Create(&vsdn::module); }
