#include "src/train/step_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace carole::train {
namespace {

// What one rank found.
struct Finding {
  double loss = 0;
  int32_t weight = -1;    // variable
  int32_t gradient = -1;  // variable
};

template <typename T>
bool AreFinite(const std::byte* values, int64_t count) {
  const T* begin = reinterpret_cast<const T*>(values);
  return std::all_of(begin, begin + count, [](T x) { return std::isfinite(x); });
}

std::string Describe(const Finding& finding, const std::vector<VariablePlace>& places) {
  std::string text;
  auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!std::isfinite(finding.loss)) add(fmt::format("loss {}", finding.loss));
  if (finding.weight >= 0) add("weights of " + places[finding.weight].name);
  if (finding.gradient >= 0) add("gradient of " + places[finding.gradient].name);
  return text;
}

}  // namespace

StepGuard::StepGuard(const VariableStore& store, const std::vector<int>& frozen) : store_(store) {
  size_t bytes = 0;
  for (int v = 0; v < static_cast<int>(store.places().size()); ++v) {
    const VariablePlace& p = store.places()[v];
    if (p.trainable || std::find(frozen.begin(), frozen.end(), v) != frozen.end()) continue;
    const size_t element = SizeOf(store.dtype());
    const auto begin = static_cast<size_t>(p.offset) * element;
    statistics_.push_back(
        {store.statistics_base() + begin, static_cast<size_t>(p.count) * element});
    bytes += statistics_.back().bytes;
  }
  saved_.resize(bytes);
}

void StepGuard::Save() {
  std::byte* to = saved_.data();
  for (const Piece& piece : statistics_) {
    std::memcpy(to, piece.begin, piece.bytes);
    to += piece.bytes;
  }
}

void StepGuard::Restore() const {
  const std::byte* from = saved_.data();
  for (const Piece& piece : statistics_) {
    std::memcpy(piece.begin, from, piece.bytes);
    from += piece.bytes;
  }
}

int StepGuard::FirstBad(const std::vector<int>& variables, const std::byte* arena) const {
  const bool f64 = store_.dtype() == DType::kF64;
  for (int v : variables) {
    const VariablePlace& p = store_.places()[v];
    const std::byte* begin = arena + static_cast<size_t>(p.offset) * SizeOf(store_.dtype());
    if (!(f64 ? AreFinite<double>(begin, p.count) : AreFinite<float>(begin, p.count))) return v;
  }
  return -1;
}

std::string StepGuard::Blame(double local_loss, collectives::Communicator& communicator) const {
  const std::vector<int>& variables = store_.ready_order();
  const Finding mine{.loss = local_loss,
                     .weight = FirstBad(variables, store_.weights_base()),
                     .gradient = FirstBad(variables, store_.gradients_base())};
  std::vector<Finding> all(static_cast<size_t>(communicator.size()));
  communicator.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                         {.what = "findings"});
  std::string text;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string words = Describe(all[rank], store_.places());
    if (!words.empty()) text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, words);
  }
  return text.empty() ? "the sum of the ranks' finite gradients" : text;
}

}  // namespace carole::train
