// Names of machines, checked before they reach any file, argument or log: what passes has letters,
// digits, dots, dashes and (IPv6) colons only, so it can be no option, no second line and nothing
// to a shell.
#pragma once

#include <string>
#include <string_view>

namespace carole::launch {

struct Address {
  std::string host;  // lower case, no trailing dot, IPv6 in its shortest form without brackets
  int port = 0;      // 1 to 65535; 0: none is known

  bool operator==(const Address&) const = default;
};

// "host:port", "1.2.3.4:port" or "[fd77::2]:port". `where` starts the error's text:
// "[tf_config] cluster.worker[1]". Throws ConfigError.
Address ParseAddress(const std::string& where, std::string_view text);

// A name or an IPv4 address, at most 253 characters, labels of at most 63; returned in lower case
// without its trailing dot. Throws ConfigError.
std::string ParseHost(const std::string& where, std::string_view text);

bool IsIpv6(std::string_view host);

// localhost, 127.x.y.z or ::1: a different machine wherever it is read.
bool IsLoopback(std::string_view host);

// False for an address, in the system's form, that none of this machine's interfaces has. Names are
// believed. A container's ports may be those of an address outside.
bool IsOfThisMachine(const std::string& host);

}  // namespace carole::launch
