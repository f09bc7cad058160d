#include "collectives/local/communicator.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "collectives/engine/engine.h"
#include "src/core/check.h"
#include "src/core/host_name.h"

namespace carole::collectives {

namespace {

// A message that was sent: the receiver copies straight from the sender's memory.
struct Parcel {
  std::span<const std::byte> data;
  std::atomic<bool> is_done{false};
};

// What the ranks share. Kept alive by all of them, since they may end in any order.
struct World {
  explicit World(int size) : slots(size), nodes(size) {}

  std::mutex mutex;
  std::map<std::tuple<int, int, Channel>, std::deque<std::shared_ptr<Parcel>>> mail;  // from, to
  std::vector<Buffer> slots;                      // NodeGroup's memory of each rank
  std::vector<std::unique_ptr<NodeGroup>> nodes;  // of each rank
  std::deque<std::vector<Buffer>> arenas;         // each: of every rank
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(World& world, int rank) : world_(world), rank_(rank) {}

  Request StartSend(int peer, Channel channel, std::span<const std::byte> data) override {
    auto parcel = std::make_shared<Parcel>();
    parcel->data = data;
    const std::lock_guard lock(world_.mutex);
    world_.mail[{rank_, peer, channel}].push_back(parcel);
    return Keep({.peer = peer, .channel = channel, .sent = std::move(parcel), .into = {}});
  }

  Request StartReceive(int peer, Channel channel, std::span<std::byte> data) override {
    return Keep({.peer = peer, .channel = channel, .sent = nullptr, .into = data});
  }

  bool Test(Request request) override {
    Letter& letter = letters_.at(request);
    const bool is_through = letter.sent ? letter.sent->is_done.load() : Take(letter);
    if (is_through) letters_.erase(request);
    return is_through;
  }

  void Cancel(Request request) override {
    const Letter letter = letters_.at(request);
    letters_.erase(request);
    if (!letter.sent) return;
    {
      const std::lock_guard lock(world_.mutex);
      if (std::erase(world_.mail[{rank_, letter.peer, letter.channel}], letter.sent) > 0) return;
    }
    while (!letter.sent->is_done.load()) std::this_thread::yield();  // it is being copied right now
  }

 private:
  struct Letter {
    int peer;
    Channel channel;
    std::shared_ptr<Parcel> sent;  // null: a receive
    std::span<std::byte> into;
  };

  Request Keep(Letter letter) {
    letters_.emplace(next_, std::move(letter));
    return next_++;
  }

  bool Take(const Letter& letter) {
    std::shared_ptr<Parcel> parcel;
    {
      const std::lock_guard lock(world_.mutex);
      auto& queue = world_.mail[{letter.peer, rank_, letter.channel}];
      if (queue.empty()) return false;
      parcel = queue.front();
      queue.pop_front();
    }
    const bool fits = parcel->data.size() == letter.into.size();
    if (fits) std::memcpy(letter.into.data(), parcel->data.data(), letter.into.size());
    parcel->is_done.store(true);
    CAROLE_CHECK(fits, "message from rank {} has {} bytes, want {}", letter.peer,
                 parcel->data.size(), letter.into.size());
    return true;
  }

  World& world_;
  const int rank_;
  std::map<Request, Letter> letters_;
  Request next_ = 0;
};

class LocalBackend final : public CommBackend {
 public:
  LocalBackend(std::shared_ptr<World> world, Topology topology, std::vector<std::string> names)
      : world_(std::move(world)),
        topology_(std::move(topology)),
        names_(std::move(names)),
        transport_(*world_, topology_.rank) {}

  const Topology& topology() const override { return topology_; }
  std::span<const std::string> names() const override { return names_; }
  Transport& transport() override { return transport_; }
  NodeGroup& node() override { return *world_->nodes[topology_.rank]; }

  std::vector<std::byte*> AllocateShared(size_t bytes, Watch& watch) override {
    const size_t number = num_arenas_++;
    Buffer mine(bytes);
    {
      const std::lock_guard lock(world_->mutex);
      while (world_->arenas.size() <= number) world_->arenas.emplace_back(topology_.size());
      world_->arenas[number][topology_.rank] = std::move(mine);
    }
    node().Sync(watch);
    const std::lock_guard lock(world_->mutex);
    std::vector<std::byte*> ranks;
    for (int rank : topology_.neighbors()) ranks.push_back(world_->arenas[number][rank].data());
    return ranks;
  }

  void StopWaiting() override {
    for (const auto& node : world_->nodes) node->Abort();
  }
  void Abort(int) override {}

 private:
  const std::shared_ptr<World> world_;
  const Topology topology_;
  const std::vector<std::string> names_;
  LocalTransport transport_;
  size_t num_arenas_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(
    int size, const CommunicatorOptions& options) {
  CAROLE_CHECK(size >= 1, "{} ranks", size);
  const int per_host = options.ranks_per_host > 0 ? options.ranks_per_host : size;
  std::vector<std::string> hosts, names;
  auto world = std::make_shared<World>(size);
  for (int r = 0; r < size; ++r) {
    hosts.push_back(size == 1 ? HostName() : fmt::format("thread host {}", r / per_host));
    names.push_back(fmt::format("rank {} ({})", r, hosts.back()));
    world->slots[r] = Buffer(NodeGroup::kSharedBytes);
    NodeGroup::MakeSlot(world->slots[r].data());
  }
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<Topology> topologies;
  for (int r = 0; r < size; ++r) {
    topologies.push_back(MakeTopology(r, hosts));
    const Topology& t = topologies.back();
    std::vector<std::byte*> shared;
    for (int n : t.neighbors()) shared.push_back(world->slots[n].data());
    world->nodes[r] = std::make_unique<NodeGroup>(t.local_rank, t.neighbors(), shared);
  }
  for (int r = 0; r < size; ++r) {
    auto backend = std::make_unique<LocalBackend>(world, topologies[r], names);
    communicators.push_back(MakeEngine(std::move(backend), options));
  }
  return communicators;
}

}  // namespace carole::collectives
