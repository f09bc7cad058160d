#include "collectives/engine/arena_registry.h"

#include <gmock/gmock.h>

#include <array>

#include "collectives/transport/operation.h"

namespace carole::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ArenaRegistry, FindsAnAddressInThePartOfEachLocalRank) {
  std::array<std::byte, 64> first[2], second[2];
  ArenaRegistry arenas;
  const auto a = arenas.Add({first[0].data(), first[1].data()}, 1, 64);
  const auto b = arenas.Add({second[0].data(), second[1].data()}, 1, 64);
  EXPECT_EQ(a->data(), first[1].data());
  EXPECT_EQ(b->size(), 64);
  std::vector<std::byte*> addresses;
  arenas.FindLocalAddresses(arenas.AddressOf({b->data() + 24, 40}), addresses);
  EXPECT_THAT(addresses, ElementsAre(second[0].data() + 24, second[1].data() + 24));
  arenas.FindLocalAddresses(arenas.AddressOf({a->data(), 64}), addresses);
  EXPECT_THAT(addresses, ElementsAre(first[0].data(), first[1].data()));
}

TEST(ArenaRegistry, MemoryThatIsNotSharedHasNoAddress) {
  std::array<std::byte, 64> shared[1];
  ArenaRegistry arenas;
  const auto own = arenas.Add({}, 0, 32), common = arenas.Add({shared[0].data()}, 0, 60);
  EXPECT_EQ(own->size(), 32);
  EXPECT_EQ(arenas.AddressOf({own->data(), 32}), OperationHeader::kNotInArena);
  EXPECT_EQ(arenas.AddressOf({common->data() + 30, 31}), OperationHeader::kNotInArena)
      << "it ends outside of the arena";
  std::vector<std::byte*> addresses = {shared[0].data()};
  arenas.FindLocalAddresses(OperationHeader::kNotInArena, addresses);
  EXPECT_THAT(addresses, IsEmpty());
}

}  // namespace
}  // namespace carole::collectives
