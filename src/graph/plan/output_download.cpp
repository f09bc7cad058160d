#include "src/graph/plan/output_download.h"

#include "src/core/check.h"

namespace carole {
namespace {

template <typename T>
std::vector<double> AsDoubles(const std::byte* bytes, size_t count) {
  const T* values = reinterpret_cast<const T*>(bytes);
  return {values, values + count};
}

}  // namespace

void OutputDownload::Begin(const Executable& executable, ValueId value) {
  const Tensor from = executable.OutputMemory(value);
  CAROLE_CHECK((from.dtype == DType::kF32 || from.dtype == DType::kF64) &&
                   from.layout == Layout::PlainActivation(from.shape),
               "output in {}, {}", Name(from.dtype), from.layout.ToString());
  if (download_ == nullptr) download_ = executable.backend().MakeDownload(from.bytes());
  dtype_ = from.dtype;
  count_ = static_cast<size_t>(from.size());
  download_->Begin(from.data);
}

std::vector<double> OutputDownload::Wait() {
  const std::byte* bytes = download_->Wait();
  return dtype_ == DType::kF64 ? AsDoubles<double>(bytes, count_) : AsDoubles<float>(bytes, count_);
}

}  // namespace carole
