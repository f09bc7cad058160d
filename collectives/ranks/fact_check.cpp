#include "collectives/ranks/fact_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "src/core/error.h"
#include "src/core/hash.h"

namespace carole::collectives {

namespace {

using Facts = std::map<std::string, std::string>;

constexpr Tag kTag{.what = "flags"};

// name \0 value \0 …
std::string Pack(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    for (const std::string& word : {name, value}) text.append(word).push_back('\0');
  }
  return text;
}

Facts Unpack(std::string_view text) {
  Facts facts;
  const auto next = [&text] {
    const size_t end = text.find('\0');
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end, text.size() - 1) + 1);  // a text may be cut
    return word;
  };
  while (!text.empty()) {
    const std::string name = next();
    facts[name] = next();
  }
  return facts;
}

std::string ValueIn(const Facts& facts, const std::string& name) {
  const auto found = facts.find(name);
  return found == facts.end() ? "nothing" : found->second;
}

[[noreturn]] void Refuse(const Communicator& communicator, int rank, const Facts& odd,
                         const Facts& first) {
  std::set<std::string> names;
  for (const Facts* facts : {&odd, &first}) {
    for (const auto& [name, value] : *facts) names.insert(name);
  }
  std::string text;
  for (const std::string& name : names) {
    const std::string got = ValueIn(odd, name), want = ValueIn(first, name);
    if (got == want) continue;
    text += fmt::format("{}{}: {} has {}, {} has {}", text.empty() ? "" : "; ", name,
                        communicator.NameOf(rank), got, communicator.NameOf(0), want);
  }
  throw ConfigError("[comm] job: ranks differ: " + text +
                    "; start all ranks with the same program, flags and data");
}

}  // namespace

void CheckSettingsMatch(Communicator& communicator, const Facts& facts) {
  if (communicator.size() == 1) return;
  const std::string mine = Pack(facts);
  struct Digest {
    uint64_t hash, bytes;
    bool operator==(const Digest&) const = default;
  };
  const Digest digest{.hash = Fnv1a64(mine), .bytes = mine.size()};
  const auto digests = AllGather(communicator, digest, kTag);
  const auto odd = std::ranges::find_if(digests, [&](const Digest& d) { return d != digests[0]; });
  if (odd == digests.end()) return;
  constexpr uint64_t kMost = 1 << 20;
  const uint64_t bytes =
      std::min(kMost, std::ranges::max(digests, {}, &Digest::bytes).bytes);  // of a rank
  std::string padded = mine;
  padded.resize(bytes);
  const auto texts = AllGatherValues<char>(communicator, padded, kTag);
  const auto facts_of = [&](size_t rank) {
    return Unpack({&texts[rank * bytes], std::min(bytes, digests[rank].bytes)});
  };
  const size_t rank = odd - digests.begin();
  Refuse(communicator, static_cast<int>(rank), facts_of(rank), facts_of(0));
}

}  // namespace carole::collectives
