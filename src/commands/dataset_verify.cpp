// carole dataset verify: checks every record of TFRecord files, and copies good ones if asked.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "io/datasets/verify.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/flag_names.h"
#include "src/commands/flags/shard_flags.h"
#include "src/core/error.h"
#include "src/monitoring/progress/work_progress.h"

namespace carole::commands {
namespace {

void PrintCounts(const io::VerifyReport& report, const std::vector<std::string>& class_names) {
  for (size_t s = 0; s < report.shards.size(); ++s)
    fmt::print("{}: {} good records\n", report.shards[s].string(), report.good[s].size());
  for (const auto& [label, count] : report.class_counts)
    fmt::print("class {:>4}: {:>7}  {}\n", label, count, LabelName(class_names, label));
  if (report.num_turned > 0)
    fmt::print(
        "{} images are not upright by their EXIF data, which training ignores as TensorFlow "
        "does; dataset build --apply_exif_orientation turns them\n",
        report.num_turned);
}

}  // namespace

int DatasetVerify(const Arguments& arguments) {
  ShardFlags flags;
  io::VerifyOptions options;
  std::string repair;
  CommandLine line(
      "carole dataset verify",
      "Checks framing, checksums, fields, labels, boxes and images of every record, and that no "
      "record is there twice. The exit code is 65 if a record is bad.",
      {"carole dataset verify --dataset_name=imagenet --dataset_dir=DATA",
       "carole dataset verify --repair=CLEAN DATA/train-00000-of-01024"});
  flags.AddTo(line);
  line.AddNonNegative("num_threads", options.threads, "Threads; 0: one per core.",
                      HelpLevel::kBasic);
  line.AddPath("repair", repair, "Folder for copies of the shards without the bad records.",
               HelpLevel::kBasic);
  if (!line.Parse(arguments)) return 0;
  options.shards = flags.Find();
  options.dataset = flags.Dataset();
  if (options.dataset != nullptr)
    options.num_classes = io::NumClasses(*options.dataset, flags.Folder());
  if (!repair.empty()) io::PrepareRepair(options.shards, repair);
  monitoring::WorkProgress progress("MB");
  options.progress = [&](uint64_t done, uint64_t total) {
    constexpr uint64_t kMegabyte = 1'000'000;
    progress.Show("verify", static_cast<int64_t>(done / kMegabyte),
                  static_cast<int64_t>(total / kMegabyte + 1));
  };
  const io::VerifyReport report = io::VerifyShards(options);
  PrintCounts(report, flags.ClassNames());
  for (const std::string& text : report.bad) fmt::print(stderr, "{}\n", WithFlags(text));
  if (!repair.empty()) {
    io::WriteRepaired(report, repair, options.threads);
    fmt::print("{} records written to {}\n", report.num_good, repair);
  }
  if (report.num_bad == 0) {
    fmt::print("{} records, all good\n", report.num_good);
    return 0;
  }
  throw DataError(fmt::format("[io.verify] {} of {} records are bad: the first is {}{}",
                              report.num_bad, report.num_bad + report.num_good, report.bad[0],
                              repair.empty() ? "; --repair=FOLDER copies the good ones" : ""));
}

}  // namespace carole::commands
