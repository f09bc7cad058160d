#include "src/train/loop/epoch_history.h"

#include <fmt/format.h>

#include <charconv>
#include <exception>
#include <nlohmann/json.hpp>

#include "src/core/error.h"

namespace carole::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr int64_t kMaxCount = int64_t{1} << 53;  // sums stay far from overflow

int64_t ReadCount(const Json& json, const char* name) {
  const auto count = json.at(name).get<int64_t>();
  if (count < 0 || count > kMaxCount)
    throw DataError(fmt::format("{}: got {}, want 0 to {}", name, count, kMaxCount));
  return count;
}

uint64_t ReadHash(const Json& json) {
  const auto text = json.at("hash").get<std::string>();
  uint64_t hash = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size())
    throw DataError(fmt::format("hash: got {}, want 16 hexadecimal digits", text));
  return hash;
}

Json ToJson(const EpochRecords& epoch) {
  return {{"epoch", epoch.epoch},         {"records", epoch.records},
          {"seen", epoch.counts.seen},    {"skipped", epoch.counts.skipped},
          {"planned", epoch.planned},     {"duplicated", epoch.duplicated},
          {"missing", epoch.missing},     {"hash", fmt::format("{:016x}", epoch.counts.hash)},
          {"complete", epoch.is_complete}};
}

EpochRecords ReadEpoch(const Json& json) {
  EpochRecords epoch{.epoch = ReadCount(json, "epoch"),
                     .records = ReadCount(json, "records"),
                     .counts = {.seen = ReadCount(json, "seen"), .hash = ReadHash(json)},
                     .planned = ReadCount(json, "planned"),
                     .duplicated = ReadCount(json, "duplicated"),
                     .missing = ReadCount(json, "missing"),
                     .is_complete = json.at("complete").get<bool>()};
  const Json& skipped = json.at("skipped");
  if (!skipped.is_array() || skipped.size() != epoch.counts.skipped.size())
    throw DataError(fmt::format("skipped: want {} counts", epoch.counts.skipped.size()));
  for (size_t fault = 0; fault < skipped.size(); ++fault) {
    const auto count = skipped[fault].get<int64_t>();
    if (count < 0 || count > kMaxCount) throw DataError("skipped: a count is out of range");
    epoch.counts.skipped[fault] = count;
  }
  return epoch;
}

}  // namespace

std::string DescribeRecords(const EpochRecords& epoch) {
  constexpr const char* kFaults[] = {"damaged records", "bad examples", "bad images"};
  const io::EpochCounts& counts = epoch.counts;
  std::string why;
  for (int fault = 0; fault < io::kNumRecordFaults; ++fault) {
    if (counts.skipped[fault] == 0) continue;
    why += fmt::format("{}{} {}", why.empty() ? " (" : ", ", counts.skipped[fault], kFaults[fault]);
  }
  if (!why.empty()) why += ")";
  return fmt::format("{} records seen, {} skipped{}, {} duplicated{}", counts.seen,
                     counts.num_skipped(), why, epoch.duplicated,
                     epoch.missing > 0 ? fmt::format(", {} missing", epoch.missing) : "");
}

void EpochHistory::Add(const EpochRecords& epoch) {
  ++total.epochs;
  total.seen += epoch.counts.seen;
  total.skipped += epoch.counts.num_skipped();
  total.duplicated += epoch.duplicated;
  total.missing += epoch.missing;
  if (epochs.size() == kMaxEpochs) epochs.erase(epochs.begin());
  epochs.push_back(epoch);
}

std::string EpochHistory::ToJson() const {
  Json list = Json::array();
  for (const EpochRecords& epoch : epochs) list.push_back(train::ToJson(epoch));
  Json json{{"version", kVersion},
            {"total",
             {{"epochs", total.epochs},
              {"seen", total.seen},
              {"skipped", total.skipped},
              {"duplicated", total.duplicated},
              {"missing", total.missing}}},
            {"epochs", std::move(list)}};
  if (current) json["current"] = train::ToJson(*current);
  return json.dump();
}

EpochHistory EpochHistory::FromJson(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("version") != kVersion) throw DataError("unknown version");
    const Json& sums = json.at("total");
    EpochHistory history{.epochs = {},
                         .total = {.epochs = ReadCount(sums, "epochs"),
                                   .seen = ReadCount(sums, "seen"),
                                   .skipped = ReadCount(sums, "skipped"),
                                   .duplicated = ReadCount(sums, "duplicated"),
                                   .missing = ReadCount(sums, "missing")},
                         .current = {}};
    for (const Json& epoch : json.at("epochs")) history.epochs.push_back(ReadEpoch(epoch));
    if (history.epochs.size() > kMaxEpochs) throw DataError("too many epochs");
    if (json.contains("current")) history.current = ReadEpoch(json.at("current"));
    return history;
  } catch (const std::exception& error) {
    throw DataError(fmt::format("[train] ledger of epochs: {}", error.what()));
  }
}

}  // namespace carole::train
