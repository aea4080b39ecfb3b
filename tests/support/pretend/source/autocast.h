// Autocast on the devices, with CUDA's lists: what is fast in few bits gets few, what needs many gets float32.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <memory>

#include "lend.h"

// Declared here, as the header they are in includes every operator there is, and takes longer than all the rest.
namespace at::autocast {
TORCH_API at::Tensor cached_cast(at::ScalarType to, const at::Tensor& tensor, c10::DeviceType device);
TORCH_API at::ScalarType get_autocast_dtype(c10::DeviceType device);
}  // namespace at::autocast

namespace pretend {

enum class Policy { LOWER, FLOAT, FLOAT_UNLESS_ASKED, WIDEST };

const std::vector<const char*> LOWER = {
    "_convolution", "_convolution.deprecated", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul",
    "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot",
    "scaled_dot_product_attention"};

const std::vector<const char*> FLOAT = {
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "norm.Scalar",
    "norm.ScalarOpt_dim", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
    "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss",
    "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d",
    "upsample_bicubic2d"};

const std::vector<const char*> FLOAT_UNLESS_ASKED = {
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList"};

const std::vector<const char*> WIDEST = {
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add", "stack", "cat"};

struct Cast final : c10::OperatorKernel {
  Cast(const c10::OperatorHandle& op, Policy policy) : policy_(policy) {
    const auto& arguments = op.schema().arguments();
    arguments_ = arguments.size();
    for (size_t i = 0; i < arguments_; ++i) {
      if (arguments[i].name() == "dtype") dtype_ = i;
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::AutocastPrivateUse1);
    auto* given = stack->data() + (stack->size() - arguments_);
    if (policy_ == Policy::FLOAT_UNLESS_ASKED) {
      const bool asked = !given[dtype_].isNone();
      if (!asked && given[0].isTensor() && can_be_cast(given[0].toTensor())) given[dtype_] = at::kFloat;
    } else {
      const auto to = type(given);
      for (size_t i = 0; i < arguments_; ++i) cast(given[i], to);
    }
    op.callBoxed(stack);
  }

 private:
  static bool can_be_cast(const at::Tensor& tensor) {
    return tensor.defined() && ours(tensor) && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
  }

  at::ScalarType type(const c10::IValue* given) const {
    if (policy_ == Policy::FLOAT) return at::kFloat;
    const auto lower = at::autocast::get_autocast_dtype(TYPE);
    if (policy_ == Policy::LOWER) return lower;
    for (size_t i = 0; i < arguments_; ++i) {
      if (given[i].isTensor() && is_float(given[i].toTensor())) return at::kFloat;
      if (given[i].isTensorList()) {
        for (const at::Tensor& tensor : given[i].toTensorVector()) {
          if (is_float(tensor)) return at::kFloat;
        }
      }
    }
    return lower;
  }

  static bool is_float(const at::Tensor& tensor) {
    return can_be_cast(tensor) && tensor.scalar_type() == at::kFloat;
  }

  // Weights that are cast for the first layer are kept for the next.
  static void cast(c10::IValue& value, at::ScalarType to) {
    if (value.isTensor()) {
      value = at::autocast::cached_cast(to, value.toTensor(), TYPE);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> all;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        all.push_back(at::autocast::cached_cast(to, tensor, TYPE));
      }
      value = std::move(all);
    }
  }

  Policy policy_;
  size_t arguments_;
  size_t dtype_ = 0;
};

inline void cast_by(torch::Library& m, const std::vector<const char*>& names, Policy policy) {
  for (const auto* name : names) {
    const std::string text(name);
    const auto dot = text.find('.');
    const auto overload = dot == std::string::npos ? "" : text.substr(dot + 1);
    const auto base = "aten::" + text.substr(0, dot);
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(base.c_str(), overload.c_str());
    m.impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Cast>(op, policy)));
  }
}

}  // namespace pretend
