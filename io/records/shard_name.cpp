#include "io/records/shard_name.h"

#include <fmt/format.h>

#include <charconv>

namespace carole::io {

std::optional<ShardName> ShardName::Parse(const std::string& name) {
  const size_t of = name.rfind("-of-");
  if (of == std::string::npos || of == 0) return std::nullopt;
  const size_t before = name.find_last_not_of("0123456789", of - 1);
  const size_t start = before == std::string::npos ? 0 : before + 1;
  ShardName shard{.stem = name.substr(0, start), .suffix = {}};
  const char* end = name.data() + name.size();
  const auto number = std::from_chars(name.data() + start, name.data() + of, shard.number);
  const auto count = std::from_chars(name.data() + of + 4, end, shard.count);
  if (number.ec != std::errc() || count.ec != std::errc()) return std::nullopt;
  shard.suffix = std::string(count.ptr, end);
  return shard;
}

std::string ShardName::ToString() const {
  return fmt::format("{}{:05}-of-{:05}{}", stem, number, count, suffix);
}

}  // namespace carole::io
