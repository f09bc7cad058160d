// The oneDNN backend: which maker serves which operation.
#include "src/backend/backend.h"

#include <omp.h>

#include <algorithm>

#include "src/backend/onednn/onednn.h"
#include "src/core/check.h"

namespace carole {
namespace onednn {
namespace {

using Maker = std::unique_ptr<Kernel> (*)(const OpSpec&, int threads);

Maker FindMaker(OpKind kind) {
  switch (kind) {
    case OpKind::kConv2d:
      return MakeConv2d;
    case OpKind::kConv2dBackwardData:
      return MakeConv2dBackwardData;
    case OpKind::kConv2dBackwardFilter:
      return MakeConv2dBackwardFilter;
    case OpKind::kLinear:
      return MakeLinear;
    case OpKind::kLinearBackwardData:
      return MakeLinearBackwardData;
    case OpKind::kLinearBackwardFilter:
      return MakeLinearBackwardFilter;
    case OpKind::kBatchNorm:
      return MakeBatchNorm;
    case OpKind::kBatchNormBackward:
      return MakeBatchNormBackward;
    case OpKind::kRelu:
    case OpKind::kReluBackward:
    case OpKind::kActivation:
    case OpKind::kActivationBackward:
    case OpKind::kAdd:
    case OpKind::kScaledAdd:
    case OpKind::kScale:
      return MakeElementwise;
    case OpKind::kScaleChannels:
    case OpKind::kScaleChannelsBackward:
      return MakeScaleChannels;
    case OpKind::kConcat:
    case OpKind::kSlice:
      return MakeChannelCopy;
    case OpKind::kPad2d:
      return MakePad2d;
    case OpKind::kDropout:
    case OpKind::kDropoutBackward:
      return MakeDropout;
    case OpKind::kPool2d:
      return MakePool2d;
    case OpKind::kPool2dBackward:
      return MakePool2dBackward;
    case OpKind::kLrn:
    case OpKind::kLrnBackward:
      return MakeLrn;
    case OpKind::kSoftmax:
      return MakeSoftmax;
    case OpKind::kSoftmaxCrossEntropy:
      return MakeSoftmaxCrossEntropy;
    case OpKind::kReorder:
      return MakeReorder;
    case OpKind::kReshape:  // the plan renames memory, no kernel runs
      return nullptr;
  }
  return nullptr;
}

class OneDnnBackend : public Backend {
 public:
  explicit OneDnnBackend(int threads) : threads_(std::max(threads, 1)) {}

  std::string_view name() const override { return "onednn"; }
  int threads() const override { return threads_; }

  bool Supports(const OpSpec& spec) const override {
    auto fits = [](const TensorSpec& t) {
      return !t.present || t.dtype == DType::kF32 || t.dtype == DType::kI32;
    };
    return FindMaker(spec.kind) != nullptr &&
           std::all_of(spec.inputs.begin(), spec.inputs.end(), fits) &&
           std::all_of(spec.outputs.begin(), spec.outputs.end(), fits);
  }

  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    CAROLE_CHECK(Supports(spec), "onednn does not support {}", Name(spec.kind));
    omp_set_num_threads(threads_);  // primitives are cut for the threads of their maker
    try {
      return FindMaker(spec.kind)(spec, threads_);
    } catch (const dnnl::error& e) {
      throw DeviceError(fmt::format("[onednn] {} of {}: the library refused: {} (status {})",
                                    Name(spec.kind), spec.inputs[0].shape.ToString(), e.what(),
                                    static_cast<int>(e.status)));
    }
  }

 private:
  int threads_;
};

}  // namespace
}  // namespace onednn

bool OneDnnAvailable() { return true; }

std::unique_ptr<Backend> MakeOneDnnBackend(int threads) {
  return std::make_unique<onednn::OneDnnBackend>(threads);
}

}  // namespace carole
