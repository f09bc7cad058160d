#include "launch/cluster/address.h"

#include <gtest/gtest.h>

namespace carole::launch {
namespace {

TEST(Address, ConvertsIpv4MappedAddressesToIpv4) {
  EXPECT_EQ(ParseAddress("x", "[::ffff:10.0.0.1]:22").host, "10.0.0.1");
  EXPECT_EQ(ParseAddress("x", "[::FFFF:7f00:1]:22").host, "127.0.0.1");
  EXPECT_EQ(ParseAddress("x", "[::fffe:10.0.0.1]:22").host, "::fffe:a00:1");
}

TEST(Address, KnowsAddressesOfOtherMachines) {
  for (const char* host : {"localhost", "127.0.0.1", "::1", "worker-0.example"})
    EXPECT_TRUE(CanBeThisMachine(host)) << host;
  for (const char* host : {"192.0.2.77", "2001:db8::77"})  // reserved for documentation
    EXPECT_FALSE(CanBeThisMachine(host)) << host;
}

}  // namespace
}  // namespace carole::launch
