#include "launch/cluster/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>

#include <algorithm>
#include <array>

#include "launch/cluster/message_text.h"
#include "src/core/error.h"
#include "src/core/text/parse_number.h"

namespace carole::launch {
namespace {

constexpr size_t kMaxNameLength = 253;  // RFC 1035, section 2.3.4, without the dot of the root
constexpr size_t kMaxLabelLength = 63;
constexpr int kMaxPort = 65535;

// These do not depend on the locale, unlike the functions of <cctype>.
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// As glibc's resolver: '_' is in no name of RFC 952, but Docker and Slurm name hosts with it.
bool IsNameCharacter(char c) {
  return IsDigit(c) || IsLetter(c) || c == '-' || c == '_' || c == '.';
}
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

[[noreturn]] void RefuseAddress(const std::string& where, std::string_view what,
                                std::string_view got, std::string_view want) {
  throw ConfigError(fmt::format("{}: {}: got {}, want {}", where, what, Quote(got), want));
}

// Returns the address in the form in which the system writes it, or "" if `host` is not an address
// of this family.
std::string Canonical(int family, const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  std::array<char, INET6_ADDRSTRLEN> text;
  if (host.find('\0') != std::string::npos) return "";
  if (inet_pton(family, host.c_str(), bytes.data()) != 1) return "";
  return inet_ntop(family, bytes.data(), text.data(), text.size());
}

// Returns whether the resolver would read the name as a number: 10.0.0.300, 12345, 0x7f000001.
bool LooksLikeNumber(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);  // npos + 1 is 0
  return last.starts_with("0x") || std::all_of(last.begin(), last.end(), IsDigit);
}

bool HasValidLabels(std::string_view name) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view label = name.substr(begin, end - begin);
    if (label.empty() || label.size() > kMaxLabelLength) return false;
    begin = end + 1;
  }
  return true;
}

int ParsePort(const std::string& where, std::string_view address, std::string_view text) {
  const auto port = ParseNumber<int>(text);
  if (!port || *port < 1 || *port > kMaxPort)
    RefuseAddress(where, "bad port", address, "HOST:PORT with a port from 1 to 65535");
  return *port;
}

Address ParseBracketed(const std::string& where, std::string_view text) {
  const size_t close = text.find("]:");
  if (close == std::string_view::npos) RefuseAddress(where, "no port", text, "[IPV6]:PORT");
  std::string host = Canonical(AF_INET6, std::string(text.substr(1, close - 1)));
  if (host.empty()) RefuseAddress(where, "bad IPv6 address", text, "[IPV6]:PORT");
  // The system writes an IPv4 address that is mapped into IPv6 with this prefix. It is the same
  // machine as the plain IPv4 address.
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped) && host.find('.') != std::string::npos)
    host.erase(0, kMapped.size());
  if (host == "::" || host == "0.0.0.0")
    RefuseAddress(where, "unspecified address", text, "the host's own address");
  return {host, ParsePort(where, text, text.substr(close + 2))};
}

}  // namespace

bool IsIpv6(std::string_view host) { return host.find(':') != std::string_view::npos; }

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && !Canonical(AF_INET, std::string(host)).empty());
}

bool CanBeThisMachine(const std::string& host) {
  const int family = IsIpv6(host) ? AF_INET6 : AF_INET;
  ifaddrs* first = nullptr;
  if (IsLoopback(host) || Canonical(family, host).empty() || getifaddrs(&first) != 0) return true;
  bool found = false;
  for (const ifaddrs* i = first; i != nullptr && !found; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family) continue;
    const void* bytes =
        family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr)
            : &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr;
    std::array<char, INET6_ADDRSTRLEN> text;
    found = inet_ntop(family, bytes, text.data(), text.size()) == host;
  }
  freeifaddrs(first);
  return found;
}

std::string ParseHost(const std::string& where, std::string_view text) {
  std::string host(text);
  if (host.ends_with('.')) host.pop_back();
  if (host.empty()) RefuseAddress(where, "no host name", text, "a name or an address");
  if (host.size() > kMaxNameLength)
    RefuseAddress(where, "host name too long", text, "at most 253 characters");
  if (!std::all_of(host.begin(), host.end(), IsNameCharacter))
    RefuseAddress(where, "bad host name", text, "letters, digits, '-', '_' and '.' only");
  if (host.starts_with('-'))  // a program would read it as an option
    RefuseAddress(where, "bad host name", text, "a name that does not begin with '-'");
  if (!HasValidLabels(host))
    RefuseAddress(where, "bad host name", text, "labels of 1 to 63 characters between the dots");
  std::transform(host.begin(), host.end(), host.begin(), Lower);
  if (LooksLikeNumber(host) && Canonical(AF_INET, host).empty())
    RefuseAddress(where, "bad IPv4 address", text, "four numbers from 0 to 255");
  if (host == "0.0.0.0")
    RefuseAddress(where, "unspecified address", text, "the host's own address");
  return host;
}

Address ParseAddress(const std::string& where, std::string_view text) {
  if (text.starts_with('[')) return ParseBracketed(where, text);
  const size_t colon = text.rfind(':');
  for (const std::string_view part : {text, text.substr(0, colon)}) {
    if (!Canonical(AF_INET6, std::string(part)).empty())
      RefuseAddress(where, "IPv6 address without brackets", text, "[IPV6]:PORT");
  }
  const std::string host = ParseHost(where, text.substr(0, colon));
  if (colon == std::string_view::npos)
    RefuseAddress(where, "no port", text, "HOST:PORT with a port from 1 to 65535");
  return {host, ParsePort(where, text, text.substr(colon + 1))};
}

}  // namespace carole::launch
