// Host names and addresses, checked before they reach a file, an argument or a log.
//
// A host that passes the checks consists of letters, digits, dots, dashes, underscores and (in
// IPv6) colons, and does not begin with a dash. So it cannot be read as a command line option,
// cannot start a second line in a file, and contains nothing that a shell interprets.
#pragma once

#include <string>
#include <string_view>

namespace carole::launch {

struct Address {
  std::string host;  // lower case, no trailing dot; IPv6 in its shortest form, without brackets
  int port = 0;      // 1 to 65535; 0: unknown

  bool operator==(const Address&) const = default;
};

// Parses "host:port", "1.2.3.4:port" or "[fd77::2]:port". `where` is the start of error messages,
// such as "[tf_config] cluster.worker[1]". Throws ConfigError if the text is malformed.
Address ParseAddress(const std::string& where, std::string_view text);

// Checks a host name or an IPv4 address: at most 253 characters, labels of at most 63. Returns it
// in lower case, without its trailing dot. `where` is the start of error messages. Throws
// ConfigError if the text is malformed.
std::string ParseHost(const std::string& where, std::string_view text);

bool IsIpv6(std::string_view host);

// Returns true for localhost, 127.x.y.z and ::1, which mean a different machine on each machine.
bool IsLoopback(std::string_view host);

// Returns false if `host` is an address that no interface of this machine has. `host` is in the
// form that ParseAddress() returns. Host names always pass: they are not resolved. A false result
// is not a proof: a container may serve ports of an address that belongs to another machine.
bool CanBeThisMachine(const std::string& host);

}  // namespace carole::launch
