// Any operator on the devices: its tensors are lent to the CPU's kernel, and what comes out becomes the device's.
// Nothing is copied: a lent tensor has the same memory, so what the kernel writes is written.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "counts.h"
#include "memory.h"

namespace pretend {

inline bool ours(const at::Tensor& tensor) {
  return tensor.device().type() == TYPE;
}

inline std::string without_underscore(const std::string& name) {
  return name.back() == '_' ? name.substr(0, name.size() - 1) : name;
}

// A tensor like another, but for its storage and with that its device.
inline at::Tensor with_storage(
    const at::Tensor& like, c10::Storage storage, c10::DispatchKey key) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

// A tensor of the host with the memory of one of a device.
inline at::Tensor lend(const at::Tensor& tensor) {
  return with_storage(tensor, Block::of(tensor.storage()).host, c10::DispatchKey::CPU);
}

// Operators whose results have sizes that only the device knows, or that tell the host a value. The decompositions
// of linear algebra ask whether they have converged.
inline bool waits(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select", "aten::bincount",
      "aten::_unique", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
      "aten::unique_dim_consecutive", "aten::_linalg_svd", "aten::_linalg_eigh", "aten::linalg_eig",
      "aten::linalg_lstsq"};
  return names.count(name) != 0;
}

// Operators that only change sizes, or fetch a value.
inline bool starts_nothing(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::resize_", "aten::_resize_output_", "aten::_local_scalar_dense"};
  return names.count(name) != 0;
}

// Operators that take a single number of the host's beside tensors of a device: those that go element by element, by
// their name without the underscore of the version in place, and a few that take a value to write.
inline const std::unordered_set<std::string>& taking_numbers() {
  static const auto names = [] {
    std::unordered_set<std::string> all = {
        "aten::_index_put_impl", "aten::index_fill", "aten::fill", "aten::where", "aten::bucketize",
        "aten::floor_divide",
        "aten::searchsorted"};
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      const bool list = name.name.rfind("aten::_foreach_", 0) == 0 || name.name.rfind("aten::_fused_", 0) == 0;
      if (op && (list || op->hasTag(at::Tag::pointwise))) all.insert(without_underscore(name.name));
    }
    return all;
  }();
  return names;
}

inline bool is_mask(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
}

// What has to be known of an operator, found once.
struct Traits {
  size_t arguments;
  size_t returns;
  std::vector<bool> written;  // of each argument, whether the operator writes to it
  bool writes = false;
  bool kernel;  // whether a device would start one: not for views
  bool waits;
  bool puts;     // writes where indices say
  bool numbers;  // takes numbers of the host's
  int draws_by = DRAWS_NOT;
  int output_size = -1;  // the argument that saves the device from being asked how large the result is

  static constexpr int DRAWS_NOT = -2, DRAWS = -1;  // else the argument that says how much is drawn

  explicit Traits(const c10::OperatorHandle& op)
      : arguments(op.schema().arguments().size()), returns(op.schema().returns().size()) {
    const auto& schema = op.schema();
    const auto& name = schema.name();
    waits = pretend::waits(name);
    puts = name == "aten::_index_put_impl_";
    numbers = taking_numbers().count(without_underscore(name)) != 0;
    for (const auto& argument : schema.arguments()) {
      const auto* alias = argument.alias_info();
      written.push_back(alias && alias->isWrite());
      writes = writes || written.back();
    }
    bool view = false;
    for (const auto& result : schema.returns()) {
      view = view || (result.alias_info() && !result.alias_info()->isWrite());
    }
    kernel = !view && !starts_nothing(name);
    if (op.hasTag(at::Tag::nondeterministic_seeded)) draws_by = DRAWS;
    for (size_t i = 0; i < arguments; ++i) {
      const auto& argument = schema.arguments()[i].name();
      if (argument == "output_size" && name == "aten::repeat_interleave") output_size = int(i);
      const bool amount = argument == "dropout_p" || argument == "train" || argument == "training";
      if (draws_by == DRAWS && amount) draws_by = int(i);
    }
  }

  bool draws(const c10::IValue* given) const {
    if (draws_by < 0) return draws_by == DRAWS;
    const auto& amount = given[draws_by];
    return !((amount.isBool() && !amount.toBool()) || (amount.isDouble() && amount.toDouble() == 0));
  }
};

// One call of an operator.
class Call {
 public:
  Call(const c10::OperatorHandle& op, const Traits& traits) : op_(op), traits_(traits) {}

  void run(torch::jit::Stack* stack) {
    auto* given = stack->data() + (stack->size() - traits_.arguments);
    const bool draws = traits_.draws(given);
    bool waits = traits_.waits || (traits_.output_size >= 0 && given[traits_.output_size].isNone());
    for (size_t i = 0; i < traits_.arguments; ++i) take(given[i], traits_.written[i]);
    if (mixed_ && !loans_.empty()) refuse(device_, c10::kCPU);
    if (asked_) device_ = *asked_;
    device_ = device_of(device_.index());
    check_index(device_.index());
    waits = waits || (masks_ && !(traits_.puts && fills(given)));
    // A number that is written where indices say is sent as a tensor.
    if (traits_.puts && numbers_ && !masks_) uploads_ += 1;
    TORCH_CHECK(
        !draws, "pretend: ", op_.schema().name(), " draws random numbers, and the device has no generator; ",
        "draw on the CPU and send what is drawn");
    if (traits_.kernel) count(counts.ops);
    if (uploads_) count(counts.up, uploads_);
    if (waits) count(counts.scalars);
    {
      // The kernel may call others: they are part of it, whatever autocast says about the CPU.
      const c10::impl::ExcludeDispatchKeyGuard plain(c10::autocast_dispatch_keyset);
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    }
    if (traits_.writes) {
      for (const auto& loan : loans_) {
        if (loan.written) settle(loan);
      }
    }
    auto* results = stack->data() + (stack->size() - traits_.returns);
    for (size_t i = 0; i < traits_.returns; ++i) give(results[i]);
  }

 private:
  struct Loan {
    at::Tensor own;
    at::Tensor lent;
    bool written;
  };

  void take(c10::IValue& value, bool written) {
    if (value.isTensor()) {
      const auto& tensor = value.toTensor();
      if (!tensor.defined()) return;
      if (ours(tensor)) {
        value = taken(tensor, written);
      } else {
        look_at_host(tensor, written, /*alone=*/true);
      }
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> lent;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        if (tensor.defined() && ours(tensor)) {
          lent.push_back(taken(tensor, written));
        } else {
          if (tensor.defined()) look_at_host(tensor, written, /*alone=*/false);
          lent.push_back(tensor);
        }
      }
      value = std::move(lent);
    } else if (value.isOptionalTensorList()) {
      take_indices(value);
    } else if (value.isDevice()) {
      if (value.toDevice().type() == TYPE) {
        asked_ = value.toDevice();
        value = c10::Device(c10::kCPU);
      }
    }
  }

  // A GPU takes indices of the host, but has to fetch them; a mask becomes indices first, one tensor a dimension,
  // and to know how many, the host waits for a mask of the device.
  void take_indices(c10::IValue& value) {
    c10::List<std::optional<at::Tensor>> lent;
    for (const auto& entry : value.toOptionalTensorVector()) {
      if (!entry.has_value() || !entry->defined()) {
        lent.push_back(entry);
        continue;
      }
      const bool mask = is_mask(*entry);
      if (ours(*entry)) {
        masks_ += mask;
        lent.push_back(taken(*entry, false));
      } else {
        uploads_ += mask ? entry->dim() : 1;
        lent.push_back(entry);
      }
      indices_ += 1;
    }
    value = std::move(lent);
  }

  at::Tensor taken(const at::Tensor& tensor, bool written) {
    if (!device_.has_index()) {
      device_ = tensor.device();
    } else if (device_ != tensor.device()) {
      refuse(device_, tensor.device());
    }
    loans_.push_back({tensor, lend(tensor), written});
    return loans_.back().lent;
  }

  // One number of the host's is sent along with a kernel.
  void look_at_host(const at::Tensor& tensor, bool written, bool alone) {
    if (written || !alone || tensor.dim() > 0 || !traits_.numbers) mixed_ = true;
    numbers_ += 1;
  }

  // `x[mask] = 1.0` fills where the mask is, so the host needn't know how many. Python makes a tensor of the
  // number, on the device or not; to add to what is there is another matter.
  bool fills(const c10::IValue* given) const {
    const auto& values = given[2].toTensor();
    const bool accumulates = given[3].toBool();
    return masks_ == 1 && indices_ == 1 && values.dim() == 0 && !accumulates;
  }

  [[noreturn]] void refuse(c10::Device one, c10::Device other) const {
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ", other,
        "! (in ", op_.schema().name(), ")");
  }

  // The kernel may have given a tensor it writes to another size, and more memory.
  static void settle(const Loan& loan) {
    auto* own = loan.own.unsafeGetTensorImpl();
    auto& storage = loan.own.storage();
    auto& block = Block::of(storage);
    auto* impl = storage.unsafeGetStorageImpl();
    if (block.host.data() != storage.data() || block.host.nbytes() != storage.nbytes()) {
      auto before = impl->set_data_ptr(
          c10::DataPtr(block.host.mutable_data(), &block, &Block::drop, c10::Device(TYPE, block.index)));
      before.release_context();  // it is the same block
      impl->set_nbytes(block.host.nbytes());
      block.resize();
    }
    const auto& lent = loan.lent;
    if (lent.sizes() != own->sizes() || lent.strides() != own->strides() ||
        lent.storage_offset() != own->storage_offset()) {
      own->set_sizes_and_strides(lent.sizes(), lent.strides(), lent.storage_offset());
    }
  }

  void give(c10::IValue& value) {
    if (value.isTensor()) {
      value = given(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> own;
      for (const at::Tensor& tensor : value.toTensorVector()) own.push_back(given(tensor));
      value = std::move(own);
    }
  }

  at::Tensor given(const at::Tensor& result) {
    if (!result.defined()) return result;
    for (const auto& loan : loans_) {
      if (loan.lent.is_same(result)) return loan.own;
    }
    TORCH_CHECK(result.has_storage(), "pretend: ", op_.schema().name(), " gives a tensor that isn't dense");
    const auto* host = result.storage().unsafeGetStorageImpl();
    for (const auto& loan : loans_) {
      if (loan.lent.storage().unsafeGetStorageImpl() == host) {
        return with_storage(result, loan.own.storage(), c10::DispatchKey::PrivateUse1);
      }
    }
    c10::Storage storage(
        c10::Storage::use_byte_size_t(), result.storage().nbytes(), pointer_to(result.storage(), device_.index()),
        &allocator, /*resizable=*/true);
    auto own = with_storage(result, std::move(storage), c10::DispatchKey::PrivateUse1);
    // Another result may be a view of this one.
    if (traits_.returns > 1) loans_.push_back({own, result, false});
    return own;
  }

  const c10::OperatorHandle& op_;
  const Traits& traits_;
  c10::SmallVector<Loan, 6> loans_;
  c10::Device device_{TYPE, -1};
  std::optional<c10::Device> asked_;
  bool mixed_ = false;  // there are tensors of the host's that no device takes
  int numbers_ = 0;     // of the host's
  int masks_ = 0;       // of the device's, among the indices
  int indices_ = 0;
  int uploads_ = 0;
};

// The kernel of one operator.
struct Lender final : c10::OperatorKernel {
  Traits traits;
  explicit Lender(const c10::OperatorHandle& op) : traits(op) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    Call(op, traits).run(stack);
  }
};

// The kernel of operators that weren't known when the device was registered.
inline void lend_any(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Traits traits(op);
  Call(op, traits).run(stack);
}

}  // namespace pretend
