#include "src/train/state/warm_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "io/checkpoint/checkpoint.h"
#include "io/weights/weights_mapping.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/core/text/lower_case.h"
#include "src/train/state/quantization_state.h"
#include "src/train/state/run_metadata.h"
#include "src/train/state/state.h"

namespace carole::train {
namespace {

bool BeginsWithOneOf(const std::string& name, const std::vector<std::string>& scopes) {
  return std::any_of(scopes.begin(), scopes.end(),
                     [&](const std::string& scope) { return name.starts_with(scope); });
}

// Returns the number of classes in the file of a classifier that differs from the net's only in
// this number; nullopt for others. Keras's file may have a matrix (C,K) for a convolution
// (1,1,C,K), so only the elements per class are compared.
std::optional<int64_t> OtherClasses(const io::WeightsSource& file,
                                    const std::vector<std::string>& classifier,
                                    const VariableStore& store) {
  const auto last = [](const Shape& shape) {
    return shape.rank() > 0 ? shape[shape.rank() - 1] : 0;
  };
  std::optional<int64_t> classes;
  for (const std::string& name : classifier) {
    if (!file.Has(name)) return std::nullopt;
    const Shape got = file.shape(name), want = store.variables()[store.Find(name)].tf_shape;
    const int64_t got_classes = last(got), want_classes = last(want);
    const bool has_others = got_classes > 0 && want_classes > 0 && got_classes != want_classes &&
                            got.size() / got_classes == want.size() / want_classes;
    if (!has_others || classes.value_or(got_classes) != got_classes) return std::nullopt;
    classes = got_classes;
  }
  return classes;
}

// Fills other_classes, file_classes and net_classes of the report.
void FindOtherClasses(const io::WeightsSource& file, const WarmStartOptions& options,
                      const VariableStore& store, WarmStartReport& report) {
  for (const std::vector<std::string>& classifier : options.classifiers) {
    const std::optional<int64_t> classes = OtherClasses(file, classifier, store);
    if (!classes) continue;
    report.file_classes = *classes;
    const Shape& shape = store.variables()[store.Find(classifier.back())].tf_shape;
    report.net_classes = shape[shape.rank() - 1];
    for (const std::string& name : classifier) {
      if (!BeginsWithOneOf(name, options.exclude_scopes)) report.other_classes.push_back(name);
    }
  }
}

// Returns the scope, with a suggestion if it is a part of names but not their start, is written in
// another case, or ends with a star.
std::string DescribeUnused(const std::string& scope, const VariableStore& store) {
  const std::string part = "/" + LowerCase(scope.substr(0, scope.find_last_not_of('*') + 1));
  for (const VariableSlice& p : store.variables()) {
    const size_t found = LowerCase("/" + p.name).find(part);
    if (part.size() > 1 && found != std::string::npos)
      return fmt::format("{} (did you mean {}?)", scope, p.name.substr(0, found + part.size() - 1));
  }
  return scope;
}

constexpr size_t kMaxNamesInError = 4;
constexpr size_t kMaxNamesInLog = 12;

// Throws MisfitError if a variable is missing (unless that is allowed) or has another shape. What
// is special about the file is a better hint than the general one.
void RequireAll(std::string_view tag, const WarmStartReport& report, bool ignore_missing,
                const std::string& path, const std::string& hint) {
  const bool lacks = !ignore_missing && !report.missing.empty();
  if (!lacks && report.shape_mismatch.empty()) return;
  std::string text = fmt::format("[{}] {}: variables do not fit the net:", tag, path);
  if (lacks) text += fmt::format(" missing {};", JoinFirst(report.missing, kMaxNamesInError));
  const bool fits_nowhere = report.restored.empty() && report.shape_mismatch.empty();
  if (lacks && fits_nowhere && !report.first_in_file.empty())
    text += fmt::format(" the file begins with {};", report.first_in_file);
  if (!report.shape_mismatch.empty())
    text += fmt::format(" wrong shape {};", JoinFirst(report.shape_mismatch, kMaxNamesInError));
  throw MisfitError(text + " " +
                    (lacks && !report.misfit_hint.empty() ? report.misfit_hint : hint));
}

// Without this check, the first step would fail and blame the learning rate.
void RequireFinite(std::string_view tag, const std::vector<float>& values, const std::string& name,
                   const std::string& path) {
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return;
  throw DataError(fmt::format(
      "[{}] {}: {}: got infinite or NaN values, want finite ones; use an earlier checkpoint", tag,
      path, name));
}

// Returns what to do if the file holds another net and says which; else "".
std::string DescribeOtherNet(const WarmStartReport& report, const io::WeightsSource& file) {
  const bool fits_somewhere = !report.restored.empty() || !report.shape_mismatch.empty() ||
                              !report.other_classes.empty() || report.missing.empty();
  if (fits_somewhere || file.carole_checkpoint() == nullptr) return "";
  const RunMetadata& attributes = file.carole_checkpoint()->attributes;
  const auto net = attributes.find(kNet);
  if (net == attributes.end()) return "";
  return fmt::format("the file holds {}: use {} or weights of the other net", net->second,
                     Option("model_name", net->second));
}

// Which variables of a net are read.
enum class Wanted { kModelVariables, kAll };

// Returns the tag of messages: a training starts with the model variables of another run, and
// evaluation and prediction read all variables.
std::string_view TagOf(Wanted which) {
  return which == Wanted::kModelVariables ? "train" : "weights";
}

WarmStartReport Read(const io::WeightsSource& file, const WarmStartOptions& options, Wanted which,
                     const std::string& suffix, VariableStore& store) {
  std::vector<io::VariableSpec> wanted;
  for (const VariableSlice& p : store.variables()) {
    if (which == Wanted::kAll || p.model_variable) wanted.push_back({p.name, p.tf_shape});
  }
  const io::MappedWeights reader(file, wanted);
  for (const std::string& line : reader.report())
    LogInfo(TagOf(which), "{}: {}", file.path(), line);
  WarmStartReport report{.misfit_hint = reader.misfit_hint()};
  if (!file.names().empty()) report.first_in_file = file.names().front();
  FindOtherClasses(reader, options, store, report);
  std::vector<float> values;
  for (int v = 0; v < static_cast<int>(store.variables().size()); ++v) {
    const VariableSlice& p = store.variables()[v];
    if (which == Wanted::kModelVariables && !p.model_variable) continue;
    const std::string name = p.model_variable ? p.name + suffix : p.name;  // others have no average
    if (BeginsWithOneOf(p.name, options.exclude_scopes)) {
      report.excluded.push_back(p.name);
    } else if (std::ranges::count(report.other_classes, p.name) > 0) {
      continue;
    } else if (!reader.Has(name)) {
      report.missing.push_back(name);
    } else if (!(reader.shape(name) == p.tf_shape)) {
      report.shape_mismatch.push_back(fmt::format(
          "{} (file {}, net {})", name, reader.shape(name).ToString(), p.tf_shape.ToString()));
    } else {
      values.resize(static_cast<size_t>(p.tf_shape.size()));
      reader.Read(name, values);
      RequireFinite(TagOf(which), values, name, file.path());
      store.Write(v, values);
      report.restored.push_back(p.name);
    }
  }
  for (const std::string& scope : options.exclude_scopes) {
    const auto is_in = [&](const std::string& name) { return BeginsWithOneOf(name, {scope}); };
    if (std::ranges::none_of(report.excluded, is_in))
      report.unused_scopes.push_back(DescribeUnused(scope, store));
  }
  if (report.misfit_hint.empty() && suffix.empty())
    report.misfit_hint = DescribeOtherNet(report, file);
  return report;
}

}  // namespace

WarmStartReport WarmStart(const io::WeightsSource& reader, const WarmStartOptions& options,
                          VariableStore& store) {
  WarmStartReport report = Read(reader, options, Wanted::kModelVariables, "", store);
  const std::string exclude = Option("checkpoint_exclude_scopes");
  std::string hint = report.unused_scopes.empty()
                         ? "exclude them with " + exclude
                         : fmt::format("{}: no variable has the prefix {}", exclude,
                                       JoinFirst(report.unused_scopes, kMaxNamesInError));
  if (!report.missing.empty() && !options.ignore_missing)
    hint += ", or allow missing ones with " + Option("ignore_missing_vars");
  RequireAll(TagOf(Wanted::kModelVariables), report, options.ignore_missing, reader.path(), hint);
  const auto model_variables =
      std::ranges::count(store.variables(), true, &VariableSlice::model_variable);
  if (std::ssize(report.excluded) == model_variables)
    throw UsageError(
        fmt::format("[train] {}: excludes all variables of the net, such as {}; "
                    "exclude fewer, or leave {} out",
                    exclude, report.excluded.front(), Option("checkpoint_path")));
  if (report.restored.empty()) {
    const std::string& first = report.first_in_file;
    throw DataError(
        fmt::format("[train] {}: has no variable of this net; its first variable is {}{}{}",
                    reader.path(), first.empty() ? "none" : first,
                    report.misfit_hint.empty() ? "" : "; ", report.misfit_hint));
  }
  return report;
}

void LogWarmStartReport(const WarmStartReport& report, const std::string& path) {
  LogInfo("train", "fine-tuning from {}: {} variables restored: {}", path, report.restored.size(),
          JoinFirst(report.restored, kMaxNamesInLog));
  if (!report.unused_scopes.empty()) {
    LogWarning("train", "{}: no variable has the prefix {}", Option("checkpoint_exclude_scopes"),
               JoinFirst(report.unused_scopes, kMaxNamesInLog));
  }
  if (!report.other_classes.empty()) {
    const bool differs_by_one = std::abs(report.file_classes - report.net_classes) == 1;
    LogLine(differs_by_one ? LogLevel::kWarning : LogLevel::kInfo, "train",
            fmt::format("classifier left out ({} classes in the file, {} in the data set): {}{}",
                        report.file_classes, report.net_classes,
                        JoinFirst(report.other_classes, kMaxNamesInLog),
                        differs_by_one ? "; if only the background class differs, set " +
                                             Option("labels_offset") + " to keep the classifier"
                                       : ""));
  }
  const std::pair<std::string, const std::vector<std::string>*> lists[] = {
      {"variables excluded by " + Option("checkpoint_exclude_scopes"), &report.excluded},
      {"variables missing in the file", &report.missing}};
  for (const auto& [what, names] : lists) {
    if (!names->empty())
      LogInfo("train", "{} {}: {}", names->size(), what, JoinFirst(*names, kMaxNamesInLog));
  }
}

bool HasMovingAverages(const io::WeightsSource& reader) {
  return std::ranges::any_of(
      reader.names(), [](const std::string& name) { return name.ends_with(kMovingAverageSuffix); });
}

void ReadVariables(const io::WeightsSource& reader, WeightsKind kind, VariableStore& store) {
  const bool takes_averages = kind == WeightsKind::kMovingAverages;
  WarmStartReport report =
      Read(reader, {}, Wanted::kAll, takes_averages ? kMovingAverageSuffix : "", store);
  if (!report.missing.empty() && std::ranges::all_of(report.missing, IsQuantizationState)) {
    report.misfit_hint = "it has no ranges of quantization; leave " + Option("quantize") +
                         " out, or use a checkpoint of a run with " + Option("quantize_delay");
  }
  RequireAll(
      TagOf(Wanted::kAll), report, false, reader.path(),
      takes_averages
          ? "the file has no moving averages of this net; omit " + Option("moving_average_decay")
          : fmt::format("check {}, {}, {}, {} and the image size", Option("model_name"),
                        Option("dataset_name"), Option("labels_offset"), Option("use_grayscale")));
  if (!takes_averages && HasMovingAverages(reader))
    LogInfo("weights", "{}: also has moving averages; use {} to load them", reader.path(),
            Option("moving_average_decay"));
}

}  // namespace carole::train
