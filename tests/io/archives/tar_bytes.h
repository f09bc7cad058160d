// Builds tar archives in memory.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>

namespace carole::io {

struct TarMember {
  std::string name;
  std::string bytes;
  char type = '0';
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
  std::string size = {};  // the header's size field; empty: the number of bytes in octal digits
};

// Returns the member's header block of 512 bytes.
inline std::string TarHeader(const TarMember& member) {
  std::string header(512, '\0');
  const auto put = [&](size_t offset, std::string_view text) {
    header.replace(offset, text.size(), text);
  };
  put(0, std::string_view(member.name).substr(0, 100));
  put(100, "0000644");
  put(124, member.size.empty() ? fmt::format("{:011o}", member.bytes.size()) : member.size);
  put(136, "00000000000");
  put(148, "        ");
  header[156] = member.type;
  put(257, member.magic);
  unsigned sum = 0;
  for (unsigned char c : header) sum += c;
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header;
}

// Returns the member's header and bytes, padded to whole blocks.
inline std::string TarEntry(const TarMember& member) {
  std::string entry = TarHeader(member) + member.bytes;
  entry.resize((entry.size() + 511) / 512 * 512, '\0');
  return entry;
}

// The two zero blocks that end an archive.
inline std::string TarEnd() { return std::string(1024, '\0'); }

// Returns "LENGTH KEY=VALUE\n"; LENGTH counts its own digits too.
inline std::string PaxRecord(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (fmt::format("{}", length).size() + rest != length) ++length;
  return fmt::format("{} {}={}\n", length, key, value);
}

}  // namespace carole::io
