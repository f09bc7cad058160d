#include "collectives/ranks/settings_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "src/core/error.h"
#include "src/core/hash.h"

namespace carole::collectives {

namespace {

using Settings = std::map<std::string, std::string>;

constexpr Tag kTag{.what = "flags"};

// Packs settings as text: name \0 value \0 name \0 value \0 …
std::string Pack(const Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    for (const std::string& part : {name, value}) text.append(part).push_back('\0');
  }
  return text;
}

Settings Unpack(std::string_view text) {
  Settings settings;
  const auto next = [&text] {
    const size_t end = text.find('\0');
    const std::string part(text.substr(0, end));
    text.remove_prefix(std::min(end, text.size() - 1) + 1);  // the text may be truncated
    return part;
  };
  while (!text.empty()) {
    const std::string name = next();
    settings[name] = next();
  }
  return settings;
}

std::string ValueIn(const Settings& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "nothing" : found->second;
}

[[noreturn]] void ThrowDifferences(const Communicator& communicator, int rank,
                                   const Settings& other, const Settings& first) {
  std::set<std::string> names;
  for (const Settings* settings : {&other, &first}) {
    for (const auto& [name, value] : *settings) names.insert(name);
  }
  std::string text;
  for (const std::string& name : names) {
    const std::string got = ValueIn(other, name), want = ValueIn(first, name);
    if (got == want) continue;
    text += fmt::format("{}{}: {} has {}, {} has {}", text.empty() ? "" : "; ", name,
                        communicator.NameOf(rank), got, communicator.NameOf(0), want);
  }
  throw ConfigError("[comm] job: ranks differ: " + text +
                    "; start all ranks with the same program, flags and data");
}

}  // namespace

void CheckSettingsMatch(Communicator& communicator, const Settings& settings) {
  if (communicator.size() == 1) return;
  const std::string mine = Pack(settings);
  struct Digest {
    uint64_t hash, bytes;
    bool operator==(const Digest&) const = default;
  };
  const Digest digest{.hash = Fnv1a64(mine), .bytes = mine.size()};
  const auto digests = AllGather(communicator, digest, kTag);
  const auto other =
      std::ranges::find_if(digests, [&](const Digest& d) { return d != digests[0]; });
  if (other == digests.end()) return;
  constexpr uint64_t kMost = 1 << 20;
  const uint64_t bytes =
      std::min(kMost, std::ranges::max(digests, {}, &Digest::bytes).bytes);  // for each rank
  std::string padded = mine;
  padded.resize(bytes);
  const auto texts = AllGatherValues<char>(communicator, padded, kTag);
  const auto settings_of = [&](size_t rank) {
    return Unpack({&texts[rank * bytes], std::min(bytes, digests[rank].bytes)});
  };
  const size_t rank = other - digests.begin();
  ThrowDifferences(communicator, static_cast<int>(rank), settings_of(rank), settings_of(0));
}

}  // namespace carole::collectives
