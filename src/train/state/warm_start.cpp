#include "src/train/state/warm_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/weights/weights_mapping.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/train/state/state.h"

namespace carole::train {
namespace {

bool BeginsWithOneOf(const std::string& name, const std::vector<std::string>& scopes) {
  return std::any_of(scopes.begin(), scopes.end(),
                     [&](const std::string& scope) { return name.starts_with(scope); });
}

constexpr size_t kNamesOfAnError = 4;
constexpr size_t kNamesOfALine = 12;

// Throws when something does not fit.
void RequireAll(const WarmStartReport& report, bool ignore_missing, const std::string& path,
                const char* hint) {
  const bool lacks = !ignore_missing && !report.missing.empty();
  if (!lacks && report.other_shape.empty()) return;
  std::string text = fmt::format("[train] {}: does not fit the net:", path);
  if (lacks) text += fmt::format(" missing {};", JoinFirst(report.missing, kNamesOfAnError));
  if (!report.other_shape.empty())
    text += fmt::format(" of another shape {};", JoinFirst(report.other_shape, kNamesOfAnError));
  throw DataError(text + " " + hint);
}

// Else a run would be told that its rate is too high.
void RequireFinite(const std::vector<float>& values, const std::string& name,
                   const std::string& path) {
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return;
  throw DataError(fmt::format(
      "[train] {}: {}: holds values that are infinite or no numbers; take an earlier checkpoint",
      path, name));
}

WarmStartReport Read(const io::WeightsReader& file, const WarmStartOptions& options,
                     const std::string& suffix, VariableStore& store) {
  std::vector<io::VariableSpec> wanted;
  for (const VariableSlice& p : store.places()) wanted.push_back({p.name, p.tf_shape});
  const io::MappedWeights reader(file, wanted);
  for (const std::string& line : reader.report()) LogInfo("train", "{}: {}", file.path(), line);
  WarmStartReport report;
  std::vector<float> values;
  for (int v = 0; v < static_cast<int>(store.places().size()); ++v) {
    const VariableSlice& p = store.places()[v];
    const std::string name = p.name + suffix;
    if (BeginsWithOneOf(p.name, options.exclude_scopes)) {
      report.excluded.push_back(p.name);
    } else if (!reader.Has(name)) {
      report.missing.push_back(name);
    } else if (!(reader.shape(name) == p.tf_shape)) {
      report.other_shape.push_back(fmt::format(
          "{} (file {}, net {})", name, reader.shape(name).ToString(), p.tf_shape.ToString()));
    } else {
      values.resize(static_cast<size_t>(p.tf_shape.size()));
      reader.Read(name, values);
      RequireFinite(values, name, file.path());
      store.Write(v, values);
      report.restored.push_back(p.name);
    }
  }
  for (const std::string& scope : options.exclude_scopes) {
    const auto is_in = [&](const std::string& name) { return BeginsWithOneOf(name, {scope}); };
    if (std::ranges::none_of(report.excluded, is_in)) report.unused_scopes.push_back(scope);
  }
  return report;
}

}  // namespace

WarmStartReport WarmStart(const io::WeightsReader& reader, const WarmStartOptions& options,
                          VariableStore& store) {
  WarmStartReport report = Read(reader, options, "", store);
  RequireAll(report, options.ignore_missing, reader.path(),
             "leave them out with --checkpoint_exclude_scopes, missing ones with "
             "--ignore_missing_vars too");
  if (report.restored.empty()) {
    throw DataError(fmt::format("[train] {}: holds no variable of this net; its first is {}",
                                reader.path(),
                                reader.names().empty() ? "none" : reader.names().front()));
  }
  return report;
}

void LogReport(const WarmStartReport& report, const std::string& path) {
  LogInfo("train", "fine-tuning from {}: {} variables restored: {}", path, report.restored.size(),
          JoinFirst(report.restored, kNamesOfALine));
  if (!report.unused_scopes.empty()) {
    LogWarning("train", "--checkpoint_exclude_scopes: no variable's name begins with {}",
               JoinFirst(report.unused_scopes, kNamesOfALine));
  }
  const std::pair<const char*, const std::vector<std::string>*> lists[] = {
      {"left out by --checkpoint_exclude_scopes", &report.excluded},
      {"not in the file", &report.missing}};
  for (const auto& [what, names] : lists) {
    if (!names->empty())
      LogInfo("train", "{} {}: {}", names->size(), what, JoinFirst(*names, kNamesOfALine));
  }
}

void ReadVariables(const io::WeightsReader& reader, WeightsKind kind, VariableStore& store) {
  const bool takes_averages = kind == WeightsKind::kMovingAverages;
  RequireAll(Read(reader, {}, takes_averages ? kAverageSuffix : "", store), false, reader.path(),
             takes_averages ? "the run kept no moving averages of this net: leave "
                              "--moving_average_decay out"
                            : "look at --model_name, --dataset_name, --labels_offset, "
                              "--use_grayscale and the image's size");
  if (!takes_averages && std::ranges::any_of(reader.names(), [](const std::string& name) {
        return name.ends_with(kAverageSuffix);
      }))
    LogInfo("weights", "{} has moving averages, too: --moving_average_decay takes these",
            reader.path());
}

}  // namespace carole::train
