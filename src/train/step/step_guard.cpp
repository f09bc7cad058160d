#include "src/train/step/step_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "src/backend/arena_math.h"
#include "src/backend/host_view.h"
#include "src/train/step/averaging.h"

namespace carole::train {
namespace {

// The values of one rank that are not finite. Trivially copyable, because ranks exchange it.
struct Finding {
  double loss = 0;
  int32_t weight = -1;    // first variable with such a weight; -1: none
  int32_t gradient = -1;  // first variable with such a gradient; -1: none
};

template <typename T>
bool AreFinite(const std::byte* values, int64_t count) {
  const T* begin = reinterpret_cast<const T*>(values);
  return std::all_of(begin, begin + count, [](T x) { return std::isfinite(x); });
}

std::string Describe(const Finding& finding, const std::vector<VariableSlice>& variables) {
  std::string text;
  auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!std::isfinite(finding.loss)) add(fmt::format("loss {}", finding.loss));
  if (finding.weight >= 0) add("weights of " + variables[finding.weight].name);
  if (finding.gradient >= 0) add("gradient of " + variables[finding.gradient].name);
  return text;
}

}  // namespace

StepGuard::StepGuard(const VariableStore& store, const std::vector<int>& frozen)
    : store_(store),
      statistics_(RunningStatisticsRanges(store, frozen)),
      saved_(store.backend().Allocate(store.statistics_bytes())) {}

// Calls use(begin, number of bytes) for each range of the running statistics.
template <typename Use>
void StepGuard::ForEachRange(const Use& use) const {
  const size_t element = SizeOf(store_.dtype());
  for (const auto& [offset, count] : statistics_) use(offset * element, count * element);
}

void StepGuard::Copy(std::byte* to, const std::byte* from) const {
  ForEachRange(
      [&](size_t begin, size_t bytes) { store_.backend().Copy(to + begin, from + begin, bytes); });
}

void StepGuard::SaveStatistics() const { Copy(saved_.get(), store_.statistics_base()); }

void StepGuard::RestoreStatistics() const { Copy(store_.statistics_base(), saved_.get()); }

void StepGuard::RestoreStatisticsUnless(const bool* applied) const {
  ForEachRange([&](size_t begin, size_t bytes) {
    store_.backend().arena_math().CopyUnless(applied, store_.statistics_base() + begin,
                                             saved_.get() + begin, bytes);
  });
}

int StepGuard::FirstNonFinite(const std::vector<int>& variables, std::byte* arena) const {
  const size_t element = SizeOf(store_.dtype());
  const HostView view(store_.backend(), arena, store_.weights_bytes());
  const bool f64 = store_.dtype() == DType::kF64;
  for (int v : variables) {
    const VariableSlice& p = store_.variables()[v];
    const std::byte* begin = view.as<std::byte>().data() + static_cast<size_t>(p.offset) * element;
    if (!(f64 ? AreFinite<double>(begin, p.count) : AreFinite<float>(begin, p.count))) return v;
  }
  return -1;
}

std::string StepGuard::DescribeNonFinite(double local_loss,
                                         collectives::Communicator& communicator) const {
  const std::vector<int>& variables = store_.ready_order();
  const Finding mine{.loss = local_loss,
                     .weight = FirstNonFinite(variables, store_.weights_base()),
                     .gradient = FirstNonFinite(variables, store_.gradients_base())};
  const std::vector<Finding> all = AllGather(communicator, mine, {.what = "findings"});
  std::string text;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string found = Describe(all[rank], store_.variables());
    if (!found.empty()) text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, found);
  }
  return text.empty() ? "the sum of gradients over ranks (each rank's own are finite)" : text;
}

}  // namespace carole::train
