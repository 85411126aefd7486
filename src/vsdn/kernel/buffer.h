// Memory of the kernel's own.
#pragma once
#include <cstdlib>
#include <cstring>
#include <new>

namespace VSDN_ISA {

// Aligned memory, zero at first.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) {
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64 + 64;
    at_ = static_cast<T*>(std::aligned_alloc(64, bytes));
    if (at_ == nullptr) throw std::bad_alloc();
    std::memset(static_cast<void*>(at_), 0, bytes);
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { std::free(at_); }
  operator T*() const { return at_; }

 private:
  T* at_;
};

}  // namespace VSDN_ISA
