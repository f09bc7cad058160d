#include "collectives/engine/arenas.h"

#include <gmock/gmock.h>

#include <array>

#include "collectives/transport/operation.h"

namespace carole::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Arenas, PlacesAreFoundAgainInEachRanksPart) {
  std::array<std::byte, 64> first[2], second[2];
  Arenas arenas;
  const auto a = arenas.Add({first[0].data(), first[1].data()}, 1, 64);
  const auto b = arenas.Add({second[0].data(), second[1].data()}, 1, 64);
  EXPECT_EQ(a->data(), first[1].data());
  EXPECT_EQ(b->size(), 64);
  std::vector<std::byte*> peers;
  arenas.FindPeers(arenas.PlaceOf({b->data() + 24, 40}), peers);
  EXPECT_THAT(peers, ElementsAre(second[0].data() + 24, second[1].data() + 24));
  arenas.FindPeers(arenas.PlaceOf({a->data(), 64}), peers);
  EXPECT_THAT(peers, ElementsAre(first[0].data(), first[1].data()));
}

TEST(Arenas, WhatIsSharedByNobodyHasNoPlace) {
  std::array<std::byte, 64> shared[1];
  Arenas arenas;
  const auto own = arenas.Add({}, 0, 32), common = arenas.Add({shared[0].data()}, 0, 60);
  EXPECT_EQ(own->size(), 32);
  EXPECT_EQ(arenas.PlaceOf({own->data(), 32}), Header::kOutside);
  EXPECT_EQ(arenas.PlaceOf({common->data() + 30, 31}), Header::kOutside) << "it ends outside";
  std::vector<std::byte*> peers = {shared[0].data()};
  arenas.FindPeers(Header::kOutside, peers);
  EXPECT_THAT(peers, IsEmpty());
}

}  // namespace
}  // namespace carole::collectives
