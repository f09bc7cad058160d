// F(4x4, 3x3): tiles and filters are transformed (winograd_vector.h), multiplied point by point,
// which for all channels are 36 matrix products, the library's, and transformed back. Blocks of
// tiles pass through all three, as many as caches or the filters' size make worth while.
#include "src/backend/onednn/winograd.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "src/backend/onednn/winograd_vector.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/simd.h"

namespace carole::onednn {

#define CAROLE_WINOGRAD(level)               \
  namespace level {                          \
  extern const WinogradTransforms kWinograd; \
  }
CAROLE_WINOGRAD(simd_v2)
CAROLE_WINOGRAD(simd_v3)
CAROLE_WINOGRAD(simd_v4)
#undef CAROLE_WINOGRAD

namespace {

namespace d = dnnl;

const WinogradTransforms& Transforms() {
  static const WinogradTransforms* const table =
      PickSimd(&simd_v2::kWinograd, &simd_v3::kWinograd, &simd_v4::kWinograd);
  return *table;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A batch of maps (N,C,H,W) in blocks of 16 channels.
struct Maps {
  explicit Maps(const Shape& s)
      : images(s[0]), channels(s[1]), height(s[2]), width(s[3]), blocks(s[1] / kWinogradLanes) {}
  int64_t Offset(int64_t image, int64_t block) const {
    return (image * blocks + block) * height * width * kWinogradLanes;
  }
  int64_t images, channels, height, width, blocks;
};

// The 4x4 tiles of a batch of maps, row by row: each team of threads takes its share in blocks.
struct Tiles {
  Tiles(const Maps& maps, int64_t teams, int64_t floats_per_tile, int64_t filter_floats)
      : rows(CeilDiv(maps.height, kWinogradTile)),
        columns(CeilDiv(maps.width, kWinogradTile)),
        all_rows(maps.images * rows),
        rows_per_team(CeilDiv(all_rows, teams)) {
    // Either a block stays in the core's cache between the passes, or has so many tiles that the
    // transformed filters, read again for each block, are the lesser part.
    constexpr int64_t kCacheFloats = 3 << 16;
    const int64_t wanted = std::max(kCacheFloats, filter_floats) / (floats_per_tile * columns);
    const int64_t most = std::clamp(wanted, int64_t{1}, rows_per_team);
    rows_per_block = CeilDiv(rows_per_team, CeilDiv(rows_per_team, most));
  }
  int64_t per_block() const { return rows_per_block * columns; }

  int64_t rows, columns;  // of one map
  int64_t all_rows;       // of all images
  int64_t rows_per_team, rows_per_block;
};

// A stack of 36 matrices. Dense: elsewise the library falls back to slower products.
Md Stack(int64_t rows, int64_t columns, bool transposed = false) {
  const auto strides = transposed ? d::memory::dims{rows * columns, 1, rows}
                                  : d::memory::dims{rows * columns, columns, 1};
  return Md({kWinogradPoints, rows, columns}, d::memory::data_type::f32, strides);
}

// c = a b, or c += a b, 36 times, on the threads that omp_set_num_threads() said when it was made.
class Products {
 public:
  Products(const Md& a, const Md& b, const Md& c, bool adds) : a_(a), b_(b), c_(c) {
    d::primitive_attr attributes = UserScratchpad();
    d::post_ops ops;
    if (adds) ops.append_sum(1.f);
    attributes.set_post_ops(ops);
    const d::matmul::primitive_desc pd(Engine(), a, b, c, attributes);
    product_ = d::matmul(pd);
    scratch_ = pd.scratchpad_desc();
  }
  size_t scratch_bytes() const { return scratch_.get_size(); }

  // Several threads may do so at once, each with memory of its own.
  void Run(d::stream& stream, float* a, float* b, float* c, std::byte* scratch) const {
    try {
      product_.execute(stream, {{DNNL_ARG_SRC, d::memory(a_, Engine(), a)},
                                {DNNL_ARG_WEIGHTS, d::memory(b_, Engine(), b)},
                                {DNNL_ARG_DST, d::memory(c_, Engine(), c)},
                                {DNNL_ARG_SCRATCHPAD, d::memory(scratch_, Engine(), scratch)}});
    } catch (const d::error& e) {
      throw DeviceError(fmt::format("[onednn] products of a 3x3 convolution: {} (status {})",
                                    e.what(), static_cast<int>(e.status)));
    }
  }

 private:
  Md a_, b_, c_, scratch_;
  d::matmul product_;
};

// What the kernels share: memory, and how the threads go through it. They are one team, or each is
// one by itself, so that what it transforms stays in its core's cache.
class WinogradKernel : public Kernel {
 public:
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

 protected:
  WinogradKernel(const OpSpec& spec, int threads, int teams)
      : threads_(threads), teams_(teams), team_size_(threads / teams) {
    input_layouts_.resize(spec.inputs.size());
    output_layouts_.resize(spec.outputs.size());
    for (size_t i = 0; i < spec.inputs.size(); ++i)
      input_layouts_[i] = spec.inputs[i].shape.rank() == 4 ? BlockedLayout(spec.inputs[i].shape)
                                                           : Layout::RowMajor();
    omp_set_num_threads(team_size_);
  }

  static Layout BlockedLayout(const Shape& shape) {
    return ToLayout(Md(Dims(shape), d::memory::data_type::f32, Tag::nChw16c), shape);
  }

  // Memory of the workspace, one piece for each team or for all together.
  struct Place {
    size_t offset = 0, bytes = 0;
  };
  Place Reserve(size_t bytes, int teams) {
    const Place place{workspace_bytes_, (bytes + 63) / 64 * 64};
    workspace_bytes_ += place.bytes * static_cast<size_t>(teams);
    return place;
  }
  Place ReserveStack(int64_t rows, int64_t columns, int teams) {
    return Reserve(sizeof(float) * static_cast<size_t>(kWinogradPoints * rows * columns), teams);
  }
  std::byte* BytesAt(const Place& place, int team) const {
    return memory_.workspace + place.offset + static_cast<size_t>(team) * place.bytes;
  }
  float* At(const Place& place, int team = 0) const {
    return reinterpret_cast<float*>(BytesAt(place, team));
  }

  // `work(team)` by each team at once.
  template <typename F>
  void ForTeams(const F& work) {
    omp_set_num_threads(team_size_);
    if (teams_ == 1) return work(0);
    std::exception_ptr trouble;  // must not leave the region
#pragma omp parallel for num_threads(teams_) schedule(static, 1)
    for (int team = 0; team < teams_; ++team) {
      try {
        work(team);
      } catch (...) {
#pragma omp critical(winograd_trouble)
        trouble = std::current_exception();
      }
    }
    if (trouble) std::rethrow_exception(trouble);
  }

  // `work(begin, end)` over the pairs of channels, which the transforms of filters take.
  template <typename F>
  void ForPairs(int64_t pairs, const F& work) const {
    constexpr int64_t kPiece = 64 * kWinogradLanes;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t begin = 0; begin < pairs; begin += kPiece)
      work(begin, std::min(begin + kPiece, pairs));
  }

  // `work(image, row of its tiles, channel block, first tile's place in the block)` for the block
  // from first_row on; rows behind end_row have image -1.
  template <typename F>
  void ForRows(const Tiles& tiles, int64_t first_row, int64_t end_row, int64_t channel_blocks,
               const F& work) const {
#pragma omp parallel for if (team_size_ > 1) num_threads(team_size_) schedule(static)
    for (int64_t i = 0; i < tiles.rows_per_block * channel_blocks; ++i) {
      const int64_t place = i / channel_blocks, row = first_row + place;
      work(row < end_row ? row / tiles.rows : -1, row % tiles.rows, i % channel_blocks,
           place * tiles.columns);
    }
  }

  // `work(first row, end of the team's rows)` for each of the team's blocks.
  template <typename F>
  static void ForBlocks(const Tiles& tiles, int team, const F& work) {
    const int64_t begin = team * tiles.rows_per_team,
                  end = std::min(begin + tiles.rows_per_team, tiles.all_rows);
    for (int64_t row = begin; row < end; row += tiles.rows_per_block) work(row, end);
  }

  int threads_, teams_, team_size_;
  KernelMemory memory_;
};

// y = conv(x, w) and dx = conv(dy, w turned round with its channels exchanged).
class WinogradConv2d : public WinogradKernel {
 public:
  WinogradConv2d(const OpSpec& spec, int threads, bool backward)
      : WinogradKernel(spec, threads, threads),
        backward_(backward),
        from_(spec.inputs[0].shape),
        to_(spec.outputs[0].shape),
        pairs_(from_.channels * to_.channels),
        tiles_(to_, threads, kWinogradPoints * (from_.channels + to_.channels),
               kWinogradPoints * pairs_),
        product_(Stack(tiles_.per_block(), from_.channels),
                 Stack(from_.channels, to_.channels, backward),
                 Stack(tiles_.per_block(), to_.channels), false) {
    const auto& a = spec.attributes_as<Conv2dAttributes>();
    relu_ = a.relu;
    top_ = backward ? 2 - a.padding.top : a.padding.top;
    left_ = backward ? 2 - a.padding.left : a.padding.left;
    input_layouts_[1] = Layout::Filter();
    output_layouts_[0] = BlockedLayout(spec.outputs[0].shape);
    filters_ = ReserveStack(1, pairs_, 1);
    inputs_ = ReserveStack(tiles_.per_block(), from_.channels, teams_);
    results_ = ReserveStack(tiles_.per_block(), to_.channels, teams_);
    scratch_ = Reserve(product_.scratch_bytes(), teams_);
  }

  void Run(const RunContext&) override {
    const float* w = memory_.inputs[1].as<float>();
    ForPairs(pairs_, [&](int64_t begin, int64_t end) {
      Transforms().filter(w, pairs_, begin, end, backward_, At(filters_));
    });
    ForTeams([&](int team) {
      d::stream stream(Engine());
      ForBlocks(tiles_, team, [&](int64_t row, int64_t end) {
        ReadTiles(row, end, At(inputs_, team));
        product_.Run(stream, At(inputs_, team), At(filters_), At(results_, team),
                     BytesAt(scratch_, team));
        WriteTiles(row, end, At(results_, team));
      });
    });
  }

 private:
  void ReadTiles(int64_t first_row, int64_t end_row, float* v) const {
    const float* from = memory_.inputs[0].as<float>();
    const int64_t pitch = from_.channels, apart = tiles_.per_block() * pitch;
    ForRows(tiles_, first_row, end_row, from_.blocks,
            [&](int64_t image, int64_t row, int64_t block, int64_t place) {
              if (image < 0) return;  // whatever lies there makes tiles that nobody writes
              Transforms().input(from + from_.Offset(image, block),
                                 {.height = from_.height,
                                  .width = from_.width,
                                  .y = row * kWinogradTile - top_,
                                  .x = -left_,
                                  .tiles = tiles_.columns},
                                 v + place * pitch + block * kWinogradLanes, apart, pitch);
            });
  }

  void WriteTiles(int64_t first_row, int64_t end_row, const float* m) const {
    auto optional = [&](size_t i) {
      const bool present = !backward_ && i < memory_.inputs.size() && memory_.inputs[i].data;
      return present ? memory_.inputs[i].as<float>() : nullptr;
    };
    const float *bias = optional(2), *residual = optional(3);
    float* to = memory_.outputs[0].as<float>();
    const int64_t pitch = to_.channels, apart = tiles_.per_block() * pitch;
    ForRows(tiles_, first_row, end_row, to_.blocks,
            [&](int64_t image, int64_t row, int64_t block, int64_t place) {
              if (image < 0) return;
              const int64_t offset = to_.Offset(image, block), channel = block * kWinogradLanes;
              Transforms().output(m + place * pitch + channel, apart, pitch,
                                  {.height = to_.height,
                                   .width = to_.width,
                                   .y = row * kWinogradTile,
                                   .x = 0,
                                   .tiles = tiles_.columns},
                                  bias == nullptr ? nullptr : bias + channel,
                                  residual == nullptr ? nullptr : residual + offset, relu_,
                                  to + offset);
            });
  }

  bool backward_, relu_ = false;
  Maps from_, to_;
  int64_t top_ = 0, left_ = 0;
  int64_t pairs_;  // of channels
  Tiles tiles_;
  Products product_;
  Place filters_, inputs_, results_, scratch_;
};

// Each thread is a team where its sums take no more memory than its tiles.
int TeamsForSums(const OpSpec& spec, int threads) {
  const Shape &x = spec.inputs[0].shape, &dy = spec.inputs[1].shape;
  const int64_t tiles =
      dy[0] * CeilDiv(dy[2], kWinogradTile) * CeilDiv(dy[3], kWinogradTile) / threads;
  return x[1] * dy[1] <= tiles * (x[1] + dy[1]) ? threads : 1;
}

// dw = G^T (sum over tiles of (B^T x B) (A dy A^T)) G, the transpose of the forward pass, and db.
class WinogradBackwardFilter : public WinogradKernel {
 public:
  WinogradBackwardFilter(const OpSpec& spec, int threads)
      : WinogradKernel(spec, threads, TeamsForSums(spec, threads)),
        x_(spec.inputs[0].shape),
        dy_(spec.inputs[1].shape),
        pairs_(x_.channels * dy_.channels),
        tiles_(dy_, teams_, kWinogradPoints * (x_.channels + dy_.channels),
               kWinogradPoints * pairs_),
        first_product_(MakeProducts(false)),
        product_(MakeProducts(true)),
        bias_sums_(static_cast<size_t>(teams_ * dy_.channels)) {
    const auto& a = spec.attributes_as<Conv2dAttributes>();
    top_ = a.padding.top;
    left_ = a.padding.left;
    output_layouts_[0] = Layout::Filter();
    output_layouts_[1] = Layout::RowMajor();
    sums_ = ReserveStack(1, pairs_, teams_);
    inputs_ = ReserveStack(tiles_.per_block(), x_.channels, teams_);
    gradients_ = ReserveStack(tiles_.per_block(), dy_.channels, teams_);
    scratch_ = Reserve(std::max(first_product_.scratch_bytes(), product_.scratch_bytes()), teams_);
  }

  void Run(const RunContext&) override {
    std::fill(bias_sums_.begin(), bias_sums_.end(), 0);
    ForTeams([&](int team) { SumTiles(team); });
    float* dw = memory_.outputs[0].as<float>();
    const int64_t busy_teams = CeilDiv(tiles_.all_rows, tiles_.rows_per_team);
    ForPairs(pairs_, [&](int64_t begin, int64_t end) {
      Transforms().filter_gradient(At(sums_), busy_teams,
                                   static_cast<int64_t>(sums_.bytes / sizeof(float)), pairs_, begin,
                                   end, dw);
    });
    if (memory_.outputs[1].data != nullptr) WriteBias();
  }

 private:
  Products MakeProducts(bool adds) const {
    return {Stack(x_.channels, tiles_.per_block(), true), Stack(tiles_.per_block(), dy_.channels),
            Stack(x_.channels, dy_.channels), adds};
  }

  void SumTiles(int team) {
    d::stream stream(Engine());
    bool first = true;
    ForBlocks(tiles_, team, [&](int64_t row, int64_t end) {
      ReadTiles(x_, memory_.inputs[0], Transforms().input, row, end, top_, left_,
                At(inputs_, team));
      ReadTiles(dy_, memory_.inputs[1], Transforms().gradient, row, end, 0, 0,
                At(gradients_, team));
      (first ? first_product_ : product_)
          .Run(stream, At(inputs_, team), At(gradients_, team), At(sums_, team),
               BytesAt(scratch_, team));
      first = false;
      if (memory_.outputs[1].data != nullptr) AddBias(team);
    });
  }

  // Rows behind the last one are read from below the map, and so become zeros.
  void ReadTiles(const Maps& maps, const Tensor& tensor,
                 decltype(WinogradTransforms::input) transform, int64_t first_row, int64_t end_row,
                 int64_t top, int64_t left, float* to) const {
    const float* from = tensor.as<float>();
    const int64_t pitch = maps.channels, apart = tiles_.per_block() * pitch;
    ForRows(tiles_, first_row, end_row, maps.blocks,
            [&](int64_t image, int64_t row, int64_t block, int64_t place) {
              transform(from + maps.Offset(std::max(image, int64_t{0}), block),
                        {.height = maps.height,
                         .width = maps.width,
                         .y = image < 0 ? maps.height : row * kWinogradTile - top,
                         .x = -left,
                         .tiles = tiles_.columns},
                        to + place * pitch + block * kWinogradLanes, apart, pitch);
            });
  }

  // At the points (1, 1) the transform of a tile is the sum of its pixels.
  void AddBias(int team) {
    constexpr int64_t kOnes = 7;
    const int64_t channels = dy_.channels;
    const float* z = At(gradients_, team) + kOnes * tiles_.per_block() * channels;
    double* sums = bias_sums_.data() + team * channels;
    for (int64_t t = 0; t < tiles_.per_block(); ++t)
      for (int64_t c = 0; c < channels; ++c) sums[c] += z[t * channels + c];
  }

  void WriteBias() const {
    float* db = memory_.outputs[1].as<float>();
    for (int64_t c = 0; c < dy_.channels; ++c) {
      double sum = 0;
      for (int team = 0; team < teams_; ++team) sum += bias_sums_[team * dy_.channels + c];
      db[c] = static_cast<float>(sum);
    }
  }

  Maps x_, dy_;
  int64_t top_ = 0, left_ = 0;
  int64_t pairs_;
  Tiles tiles_;
  Products first_product_, product_;
  std::vector<double> bias_sums_;
  Place sums_, inputs_, gradients_, scratch_;
};

}  // namespace

bool WantsWinograd(const OpSpec& spec) {
  const auto* a = std::get_if<Conv2dAttributes>(&spec.attributes);
  if (a == nullptr || a->exact || !HasIsa(d::cpu_isa::avx512_core)) return false;
  const bool filter = spec.kind == OpKind::kConv2dBackwardFilter;
  const TensorSpec& w = filter ? spec.outputs[0] : spec.inputs[1];
  const Shape& y = (filter ? spec.inputs[1] : spec.outputs[0]).shape;  // or dx
  const bool fits = spec.inputs[0].dtype == DType::kF32 && w.dtype == DType::kF32 &&
                    w.shape[2] == 3 && w.shape[3] == 3 && a->stride_h == 1 && a->stride_w == 1 &&
                    a->dilation == 1 && a->groups == 1 && w.shape[0] % kWinogradLanes == 0 &&
                    w.shape[1] % kWinogradLanes == 0;
  if (!fits) return false;
  const auto tiles =
      static_cast<double>(y[0] * CeilDiv(y[2], kWinogradTile) * CeilDiv(y[3], kWinogradTile));
  const auto pixels = static_cast<double>(y[0] * y[2] * y[3]);
  const auto k = static_cast<double>(w.shape[0]), c = static_cast<double>(w.shape[1]);
  // For a tile, in the time of one operation of a direct convolution, which has 18 for each pixel
  // and pair of channels. Measured on a Zen 5: products of 36 points, transforms of each channel,
  // and the transformed filters' way through memory.
  const double direct = 18 * pixels / tiles * k * c;
  const double ours = 85 * k * c + 3000 * (k + c) + 9000 * k * c / tiles;
  return direct > 1.3 * ours;
}

std::unique_ptr<Kernel> MakeWinograd(const OpSpec& spec, int threads) {
  if (spec.kind == OpKind::kConv2dBackwardFilter)
    return std::make_unique<WinogradBackwardFilter>(spec, threads);
  return std::make_unique<WinogradConv2d>(spec, threads, spec.kind == OpKind::kConv2dBackwardData);
}

}  // namespace carole::onednn
