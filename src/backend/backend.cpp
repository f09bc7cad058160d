#include "src/backend/backend.h"

#include <chrono>
#include <cstring>

#include "src/backend/arena_math.h"
#include "src/backend/ops/copies.h"
#include "src/core/error.h"
#include "src/tensor/buffer.h"

namespace carole {

std::string_view Name(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kTf32:
      return "tf32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
  }
  return "?";
}

DType ActivationType(Precision precision) {
  return precision == Precision::kBf16   ? DType::kBF16
         : precision == Precision::kFp16 ? DType::kF16
                                         : DType::kF32;
}

void Backend::SetPrecision(Precision precision) {
  if (precision == Precision::kFp32) {
    activation_dtype_ = DType::kF32;
    return;
  }
  throw ConfigError(fmt::format("[precision] {}: {}", Name(precision),
                                precision == Precision::kTf32
                                    ? fmt::format("only GPUs support this format; use {} or bf16",
                                                  Option("precision", "fp32"))
                                    : fmt::format("not supported by the {} backend; use {}", name(),
                                                  Option("precision", "fp32"))));
}

DeviceMemory AllocateOnHost(size_t bytes) {
  auto buffer = std::make_shared<Buffer>(bytes);
  return {buffer, buffer->data()};
}

void Backend::Copy(std::byte* to, const std::byte* from, size_t bytes) const {
  arena_math().Copy(to, from, bytes);
}

namespace {

uint64_t SteadyNanoseconds() {
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(now.count());
}

}  // namespace

void Backend::EndLap(DeviceStopwatch* watch, int part) const {
  watch->EndLap(part, SteadyNanoseconds());
}

void Backend::WriteTime(void* /*stream*/, uint64_t* to) const { *to = SteadyNanoseconds(); }

void Backend::Reorder(const Tensor& from, const Tensor& to) const {
  const OpSpec spec{.kind = op::kReorder,
                    .inputs = {{from.shape, from.dtype, from.layout}},
                    .outputs = {{to.shape, to.dtype, to.layout}}};
  auto kernel = MakeKernel(spec);
  const DeviceMemory workspace = Allocate(kernel->workspace_bytes());
  KernelMemory memory;
  memory.inputs = {from};
  memory.outputs = {to};
  memory.workspace = workspace.get();
  kernel->Bind(memory);
  kernel->Run({});
  Synchronize();  // the kernel must not use its workspace any more when this returns
}

}  // namespace carole
