#include "src/train/evaluation/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::train {
namespace {

constexpr int64_t kMaxPrintedClasses = 30;  // a larger confusion matrix does not fit on a screen

// Each sample's loss is rounded to a multiple of this unit. So sums of losses up to 2^29 are exact,
// and the order of addition does not change them.
constexpr double kLossUnit = 0x1p-24;

double Share(double part, double whole) { return whole == 0 ? 0 : part / whole; }

std::string NameOf(std::span<const std::string> names, int64_t label) {
  return label < static_cast<int64_t>(names.size()) ? names[label] : fmt::format("class {}", label);
}

// Length of the longest name among the labels that have a row in a table.
template <typename HasRow>
size_t WidestName(std::span<const std::string> names, int64_t num_classes, HasRow has_row) {
  size_t widest = 0;
  for (int64_t label = 0; label < num_classes; ++label) {
    if (has_row(label)) widest = std::max(widest, NameOf(names, label).size());
  }
  return widest;
}

// Cross-entropy of one sample, given its largest logit and the logit of its label.
double CrossEntropy(std::span<const double> logits, double largest, double label_logit) {
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - largest);
  return largest - label_logit + std::log(sum);
}

}  // namespace

int64_t SamplesOf(const ConfusionCounts& counts, int64_t label, int64_t num_classes) {
  int64_t sum = 0;
  const auto end = counts.lower_bound((label + 1) * num_classes);
  for (auto cell = counts.lower_bound(label * num_classes); cell != end; ++cell)
    sum += cell->second;
  return sum;
}

Metrics::Metrics(int64_t num_classes) : num_classes_(num_classes) {}

void Metrics::Add(std::span<const double> logits, std::span<const int32_t> labels, int64_t valid) {
  CAROLE_CHECK(valid <= static_cast<int64_t>(labels.size()) &&
                   logits.size() == labels.size() * static_cast<size_t>(num_classes_),
               "{} logits for {} labels, {} valid", logits.size(), labels.size(), valid);
  for (int64_t n = 0; n < valid; ++n) {
    const int64_t label = labels[n];
    if (label < 0 || label >= num_classes_) {
      throw DataError(
          fmt::format("[eval] label out of range: got {}, want 0 to {}; check {} and the "
                      "number of classes",
                      label, num_classes_ - 1, Option("labels_offset")));
    }
    const auto row =
        logits.subspan(static_cast<size_t>(n * num_classes_), static_cast<size_t>(num_classes_));
    const int64_t prediction = std::max_element(row.begin(), row.end()) - row.begin();
    const double label_logit = row[label];
    const auto larger =
        std::count_if(row.begin(), row.end(), [&](double x) { return x > label_logit; });
    ++confusion_[label * num_classes_ + prediction];
    totals_[kSamples] += 1;
    totals_[kCorrect] += label == prediction;
    totals_[kTopFive] += std::isfinite(label_logit) && larger < 5;
    totals_[kLoss] += std::round(CrossEntropy(row, row[prediction], label_logit) / kLossUnit);
  }
}

void Metrics::SumOverRanks(collectives::Communicator& communicator) {
  communicator.AllReduce(std::span(totals_), {.what = "metrics"});
  GatherConfusion(communicator);
}

void Metrics::GatherConfusion(collectives::Communicator& communicator) {
  using Cell = std::array<int64_t, 2>;
  std::vector<Cell> mine;
  for (const auto& [cell, count] : confusion_) mine.push_back({cell, count});
  const auto sizes = collectives::AllGather(communicator, mine.size(), {.what = "metrics: cells"});
  mine.resize(*std::max_element(sizes.begin(), sizes.end()));
  const auto all =
      collectives::AllGatherValues<Cell>(communicator, mine, {.what = "metrics: confusion"});
  confusion_.clear();
  for (const auto& [cell, count] : all) {
    if (count > 0) confusion_[cell] += count;
  }
}

int64_t Metrics::confusion(int64_t label, int64_t prediction) const {
  const auto cell = confusion_.find(label * num_classes_ + prediction);
  return cell == confusion_.end() ? 0 : cell->second;
}

int64_t Metrics::samples_of(int64_t label) const {
  return SamplesOf(confusion_, label, num_classes_);
}

double Metrics::accuracy() const { return Share(totals_[kCorrect], totals_[kSamples]); }

double Metrics::recall_5() const { return Share(totals_[kTopFive], totals_[kSamples]); }

double Metrics::loss() const { return Share(totals_[kLoss] * kLossUnit, totals_[kSamples]); }

std::vector<std::pair<const char*, double>> Metrics::Scalars() const {
  std::vector<std::pair<const char*, double>> scalars = {{"eval/Accuracy", accuracy()}};
  if (num_classes_ > 5) scalars.emplace_back("eval/Recall_5", recall_5());
  scalars.emplace_back("eval/Loss", loss());
  return scalars;
}

double Metrics::accuracy_of(int64_t label) const {
  return Share(static_cast<double>(confusion(label, label)),
               static_cast<double>(samples_of(label)));
}

std::string Metrics::ClassTable(std::span<const std::string> names) const {
  const size_t width =
      WidestName(names, num_classes_, [&](int64_t label) { return samples_of(label) > 0; });
  std::string text = "\nPer class\n";
  for (int64_t label = 0; label < num_classes_; ++label) {
    const int64_t samples = samples_of(label);
    if (samples == 0) continue;
    text += fmt::format("  {:<{}}  {:.4f}  ({} of {})\n", NameOf(names, label), width,
                        accuracy_of(label), confusion(label, label), samples);
  }
  return text;
}

std::string Metrics::ConfusionTable(std::span<const std::string> names) const {
  const size_t width = WidestName(names, num_classes_, [](int64_t) { return true; });
  int64_t largest = num_classes_ - 1;
  for (const auto& [key, count] : confusion_) largest = std::max(largest, count);
  const size_t cell = fmt::formatted_size("{}", largest);
  std::string text = "\nConfusion matrix (rows: labels, columns: predictions by number)\n";
  text += fmt::format("  {:<{}}  {:>{}}", "", width, "", cell);
  for (int64_t p = 0; p < num_classes_; ++p) text += fmt::format("  {:>{}}", p, cell);
  for (int64_t label = 0; label < num_classes_; ++label) {
    text += fmt::format("\n  {:<{}}  {:>{}}", NameOf(names, label), width, label, cell);
    for (int64_t p = 0; p < num_classes_; ++p)
      text += fmt::format("  {:>{}}", confusion(label, p), cell);
  }
  return text + "\n";
}

std::string Metrics::Summary(std::string_view separator) const {
  std::string text;
  for (const auto& [tag, value] : Scalars())
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : separator, tag, value);
  return text;
}

std::string Metrics::Report(std::span<const std::string> names) const {
  std::string text = fmt::format("{}\n({} samples)\n", Summary("\n"), samples());
  text += ClassTable(names);
  if (num_classes_ <= kMaxPrintedClasses) text += ConfusionTable(names);
  return text;
}

}  // namespace carole::train
