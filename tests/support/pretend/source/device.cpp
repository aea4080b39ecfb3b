// A pretend accelerator in PyTorch's PrivateUse1 slot: two devices whose memory is the host's and whose every
// operator is the CPU's, so that the same bits come out. It refuses what a GPU refuses, and counts what one suffers
// from.

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "autocast.h"
#include "counts.h"
#include "guard.h"
#include "lend.h"
#include "memory.h"

namespace pretend {
namespace {

REGISTER_ALLOCATOR(TYPE, &allocator);
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);
[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

const c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

// For a while, another device is the current one of this thread.
struct On {
  const c10::DeviceIndex before = current;
  explicit On(std::optional<c10::Device> device) {
    if (device && device->has_index()) {
      check_index(device->index());
      current = device->index();
    }
  }
  ~On() { current = before; }
};

at::Tensor empty(
    c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const On on(device);
  return at::detail::empty_generic(sizes, &allocator, KEYS, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const On on(device);
  return at::detail::empty_strided_generic(sizes, strides, &allocator, KEYS, c10::dtype_or_default(dtype));
}

// Zeros that take no memory are a tensor of another kind, which can't be lent; plain zeros do as well.
at::Tensor zeros(
    c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin) {
  auto tensor = empty(sizes, dtype, layout, device, pin, std::nullopt);
  return tensor.zero_();
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (!ours(from)) {
    count(counts.up);
  } else if (!ours(to)) {
    count(counts.down);
  } else {
    count(from.device() == to.device() ? counts.ops : counts.across);
  }
  const auto target = ours(to) ? lend(to) : to;
  target.copy_(ours(from) ? lend(from) : from);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Tensor& set_storage_and_sizes(
    at::Tensor& tensor, c10::Storage storage, int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  if (strides.empty() && !sizes.empty()) {
    impl->set_sizes_contiguous(sizes);
    impl->set_storage_offset(offset);
  } else {
    impl->set_sizes_and_strides(sizes, strides, offset);
  }
  return tensor;
}

at::Tensor& set_storage(at::Tensor& tensor, c10::Storage storage) {
  const auto size = int64_t(storage.nbytes() / tensor.itemsize());
  return set_storage_and_sizes(tensor, std::move(storage), 0, {size}, {1});
}

at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& like) {
  return set_storage_and_sizes(tensor, like.storage(), like.storage_offset(), like.sizes(), like.strides());
}

// Every operator that has a kernel of the CPU's own uses it, and any other is put together of those as it is on the
// CPU: so the bits are the same. Convolutions are put together by device, and would come out otherwise.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", zeros);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("set_.source_Storage_storage_offset", set_storage_and_sizes);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Tensor", set_tensor);

  auto& dispatcher = c10::Dispatcher::singleton();
  const std::unordered_set<std::string> whole = {"aten::convolution", "aten::convolution_backward"};
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    // A GPU does a list of tensors in one kernel.
    const bool list = name.name.rfind("aten::_foreach_", 0) == 0;
    const bool kernel = list || op->hasKernelForDispatchKey(c10::DispatchKey::CPU) || whole.count(name.name);
    if (!kernel) continue;
    const auto full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    m.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Lender>(*op)));
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&lend_any>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  cast_by(m, LOWER, Policy::LOWER);
  cast_by(m, FLOAT, Policy::FLOAT);
  cast_by(m, FLOAT_UNLESS_ASKED, Policy::FLOAT_UNLESS_ASKED);
  cast_by(m, WIDEST, Policy::WIDEST);
}

// A copy is what makes a tensor that is conjugated or negated on paper so in fact: it must not be asked to do that
// first.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace pretend

// What Python asks, through ctypes.
extern "C" {

void pretend_counts(int64_t* of) {
  const auto& now = pretend::counts;
  of[0] = now.ops;
  of[1] = now.up;
  of[2] = now.down;
  of[3] = now.across;
  of[4] = now.scalars;
}

int pretend_devices() { return pretend::DEVICES; }
int pretend_current() { return pretend::current; }
void pretend_set_current(int index) { pretend::current = c10::DeviceIndex(index); }
void pretend_wait() { pretend::count(pretend::counts.scalars); }
int64_t pretend_allocated(int index) { return pretend::usage[index].allocated; }
int64_t pretend_peak(int index) { return pretend::usage[index].peak; }
void pretend_reset_peak(int index) { pretend::allocator.resetPeakStats(c10::DeviceIndex(index)); }
int64_t pretend_total(int index) { return pretend::usage[index].total(); }
int64_t pretend_limit(int index, int64_t bytes) { return pretend::usage[index].limit.exchange(bytes); }
}
