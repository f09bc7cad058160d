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

// A message that was sent. The receiver copies directly from the sender's memory.
struct PostedSend {
  std::span<const std::byte> data;
  std::atomic<bool> is_done{false};
};

// The state that the ranks share. All ranks keep it alive, because they may end in any order.
struct World {
  explicit World(int size) : slots(size), nodes(size) {}

  std::mutex mutex;
  std::map<std::tuple<int, int, Channel>, std::deque<std::shared_ptr<PostedSend>>>
      mail;                                       // sent messages by sender, receiver and channel
  std::vector<Buffer> slots;                      // each rank's memory for NodeGroup
  std::vector<std::unique_ptr<NodeGroup>> nodes;  // by rank
  std::deque<std::vector<Buffer>> arenas;         // each rank's part of each arena
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(World& world, int rank) : world_(world), rank_(rank) {}

  Request StartSend(int peer, Channel channel, std::span<const std::byte> data) override {
    auto posted = std::make_shared<PostedSend>();
    posted->data = data;
    const std::lock_guard lock(world_.mutex);
    world_.mail[{rank_, peer, channel}].push_back(posted);
    return Add({.peer = peer, .channel = channel, .sent = std::move(posted), .into = {}});
  }

  Request StartReceive(int peer, Channel channel, std::span<std::byte> data) override {
    return Add({.peer = peer, .channel = channel, .sent = nullptr, .into = data});
  }

  bool Test(Request request) override {
    OpenMessage& message = messages_.at(request);
    const bool is_complete = message.sent ? message.sent->is_done.load() : TryReceive(message);
    if (is_complete) messages_.erase(request);
    return is_complete;
  }

  void Cancel(Request request) override {
    const OpenMessage message = messages_.at(request);
    messages_.erase(request);
    if (!message.sent) return;
    {
      const std::lock_guard lock(world_.mutex);
      if (std::erase(world_.mail[{rank_, message.peer, message.channel}], message.sent) > 0) return;
    }
    while (!message.sent->is_done.load()) std::this_thread::yield();  // the receiver is copying it
  }

 private:
  struct OpenMessage {
    int peer;
    Channel channel;
    std::shared_ptr<PostedSend> sent;  // null if it is a receive
    std::span<std::byte> into;         // memory of a receive
  };

  Request Add(OpenMessage message) {
    messages_.emplace(next_, std::move(message));
    return next_++;
  }

  bool TryReceive(const OpenMessage& message) {
    std::shared_ptr<PostedSend> posted;
    {
      const std::lock_guard lock(world_.mutex);
      auto& queue = world_.mail[{message.peer, rank_, message.channel}];
      if (queue.empty()) return false;
      posted = queue.front();
      queue.pop_front();
    }
    const bool fits = posted->data.size() == message.into.size();
    if (fits) std::memcpy(message.into.data(), posted->data.data(), message.into.size());
    posted->is_done.store(true);
    CAROLE_CHECK(fits, "message from rank {} has {} bytes, want {}", message.peer,
                 posted->data.size(), message.into.size());
    return true;
  }

  World& world_;
  const int rank_;
  std::map<Request, OpenMessage> messages_;
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

  std::vector<std::byte*> AllocateShared(size_t bytes, Watchdog& watchdog) override {
    const size_t number = num_arenas_++;
    Buffer mine(bytes);
    {
      const std::lock_guard lock(world_->mutex);
      while (world_->arenas.size() <= number) world_->arenas.emplace_back(topology_.size());
      world_->arenas[number][topology_.rank] = std::move(mine);
    }
    node().Barrier(watchdog);
    const std::lock_guard lock(world_->mutex);
    std::vector<std::byte*> ranks;
    for (int rank : topology_.local_ranks()) ranks.push_back(world_->arenas[number][rank].data());
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

std::vector<std::unique_ptr<FullCommunicator>> MakeLocalCommunicators(
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
  std::vector<std::unique_ptr<FullCommunicator>> communicators;
  std::vector<Topology> topologies;
  for (int r = 0; r < size; ++r) {
    topologies.push_back(MakeTopology(r, hosts));
    const Topology& t = topologies.back();
    std::vector<std::byte*> shared;
    for (int n : t.local_ranks()) shared.push_back(world->slots[n].data());
    world->nodes[r] = std::make_unique<NodeGroup>(t.local_rank, t.local_ranks(), shared);
  }
  for (int r = 0; r < size; ++r) {
    auto backend = std::make_unique<LocalBackend>(world, topologies[r], names);
    communicators.push_back(MakeEngine(std::move(backend), options));
  }
  return communicators;
}

}  // namespace carole::collectives
