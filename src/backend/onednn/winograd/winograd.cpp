// 3x3 convolutions with Winograd's minimal filtering algorithm F(4x4, 3x3) (Lavin & Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2015), for forward, dx and dw.
//
// PURPOSE. A direct 3x3 convolution needs 9 multiplications for each pixel of y and each pair of an
// input and an output channel. Winograd's algorithm needs fewer. In one dimension, it computes 4
// results y of a filter g with 3 taps from 6 inputs d with 6 multiplications instead of 12:
//   y = A^T ((G g) * (B^T d)),       where * multiplies element by element.
// The idea comes from products of polynomials: evaluate both factors at 6 points, multiply the
// values, and interpolate. In two dimensions, a tile of 4x4 results takes 6x6 = 36 multiplications,
// which is 2.25 for each pixel and a quarter of 9. The transforms A, B and G are sums with constant
// factors. A tile of x is transformed once for all output channels: with many channels, this
// cost is small.
//
// EXAMPLE in one dimension, with the points 0, 5/8, -5/8, 3/2, -3/2 and infinity:
//   d = (1, 2, 3, 4, 5, 6)   v = B^T d = (-2.043, -2.0625, -1.4375, 8.6562, -1, -2.8047)
//   g = (1, 0, 2)            u = G g   = (1.1378, -1.2262, -1.2262, 0.6573, 0.6573, 2)
//                            m = u * v = (-2.3244, 2.5291, 1.7627, 5.69, -0.6573, -5.6094)
//                            y = A^T m = (7, 10, 13, 16)
//   Direct: y[i] = d[i] + 2 d[i + 2] gives the same.
//
// LAYOUT. Maps are in blocks of 8 or 16 channels (nChw8c, nChw16c), which are oneDNN's layouts for
// its own convolutions, so no reorders are needed around this kernel. One pixel's block of channels
// is one vector. So a transform is plain vector arithmetic on 36 vectors, without shuffles, and
// every lane does the same. Transformed tiles are stored by point first: (36 points, tiles,
// channels). Then the sum over input channels of u * v is one matrix product for each point,
//   (tiles x C) (C x K), 36 times,
// for which oneDNN's batched matmul is used.
//
// PHASES of forward and of dx (which is a convolution of dy with the filter rotated by 180 degrees
// and its channels exchanged):
//   1. All threads transform the filter into u (36, C, K).
//   2. Each thread takes its share of the rows of tiles, in blocks of rows. For each block it
//      transforms the tiles of x, multiplies them with u, and transforms the products to pixels of
//      y; bias, residual and ReLU are applied while y is written.
// A block is chosen so that its tiles stay in the core's cache between these three steps. If u is
// larger than the cache, blocks are larger too, because each block reads all of u (see Tiles).
//
// Example: x (32,256,14,14), 256 output channels. A map has 4x4 tiles (the last ones partly
// outside), so there are 512 tiles in 128 rows. With 4 threads, each takes 32 rows, which is 8
// images.
//
// PHASES of dw = G^T (sum over tiles of (B^T x B) * (A dy A^T)) G, the transpose of forward:
//   1. The threads are divided into teams. Each team transforms blocks of tiles of x and of dy. For
//      each point it multiplies (C x tiles) by (tiles x K) and adds the product to its sum
//      (36, C, K). The first product of a team overwrites the sum, so it need not be cleared.
//   2. All threads add up the sums of the teams and transform them into dw.
// A team is one thread if a sum takes no more memory than the tiles of one thread. If not, all
// threads are one team and share one sum. db is summed from dy in phase 1.
//
// ACCURACY. For 64 channels, results have rounding errors of 6e-7 of their spread, direct sums 2e-7
// (winograd_vector_simd.cpp compares points). Conv2dAttributes::exact forbids Winograd:
// vgg_416 sets it, because its 413 ReLUs in sequence make rounding errors grow ten thousandfold.
//
// WHEN IT IS FASTER. IsFaster() estimates the cost of both ways for one tile, in operations of a
// direct fp32 convolution. Its factors were measured on a Zen 5. For the example above it is
//   direct:    18 * (196 pixels / 16 tiles) * 256 * 256                     = 14.5 million
//   Winograd:  85 * 256 * 256 + 3000 * (256 + 256) + 9000 * 256 * 256 / 512 = 8.3 million
// The ratio is 1.7. That is more than the 1.3 that IsFaster() wants, so Winograd is used. For x
// (8,512,7,7) and 512 output channels, only 32 tiles share the cost of the transformed filters: 58
// million against 99 million. There, oneDNN's direct convolution is used.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "src/backend/onednn/kernels/onednn.h"
#include "src/backend/onednn/winograd/winograd_kernel.h"
#include "src/backend/ops/conv2d.h"
#include "src/core/divide_up.h"

namespace carole::onednn {

namespace simd_v3 {  // vectors of 8 lanes
extern const WinogradTransforms<float> kWinogradFloats;
extern const WinogradTransforms<Bf16> kWinogradBf16s;
}  // namespace simd_v3
namespace simd_v4 {  // vectors of 16 lanes
extern const WinogradTransforms<float> kWinogradFloats;
extern const WinogradTransforms<Bf16> kWinogradBf16s;
}  // namespace simd_v4

namespace {

// The transforms whose vectors have as many lanes as oneDNN's blocks have channels. oneDNN may use
// blocks of 8 on a CPU with AVX-512 (ONEDNN_MAX_CPU_ISA), so the CPU alone does not decide.
template <typename T>
const WinogradTransforms<T>& Transforms() {
  static const bool wide = ChannelBlock() == 16;
  if constexpr (std::is_same_v<T, Bf16>) {
    return wide ? simd_v4::kWinogradBf16s : simd_v3::kWinogradBf16s;
  } else {
    return wide ? simd_v4::kWinogradFloats : simd_v3::kWinogradFloats;
  }
}

// y = conv(x, w), and dx = conv(dy, w rotated by 180 degrees with its channels exchanged).
template <typename T>
class WinogradConv2d : public WinogradKernel {
 public:
  WinogradConv2d(const OpSpec& spec, int threads)
      : WinogradKernel(spec, threads, threads),
        backward_(spec.kind == op::kConv2dBackwardData),
        from_(spec.inputs[0].shape, lanes_),
        to_(spec.outputs[0].shape, lanes_),
        pairs_(from_.channels * to_.channels),
        tiles_(to_, threads, kWinogradPoints * (from_.channels + to_.channels),
               kWinogradPoints * pairs_),
        product_(Stack(tiles_.per_block(), from_.channels),
                 Stack(from_.channels, to_.channels, backward_),
                 Stack(tiles_.per_block(), to_.channels), false) {
    const auto& a = spec.attributes.as<Conv2dAttributes>();
    relu_ = a.relu;
    top_ = backward_ ? 2 - a.padding.top : a.padding.top;
    left_ = backward_ ? 2 - a.padding.left : a.padding.left;
    input_layouts_[1] = Layout::Filter();
    output_layouts_[0] = BlockedLayout(spec.outputs[0]);
    filters_ = ReserveStack(1, pairs_, 1);
    inputs_ = ReserveStack(tiles_.per_block(), from_.channels, teams_);
    results_ = ReserveStack(tiles_.per_block(), to_.channels, teams_);
    scratch_ = Reserve(product_.scratch_bytes(), teams_);
  }

  void Bind(const KernelMemory& memory) override {
    memory_ = memory;
    for (int team = 0; team < teams_; ++team) {
      product_.AddTeam(At(inputs_, team), At(filters_), At(results_, team),
                       BytesAt(scratch_, team));
    }
  }

  void Run(const RunContext&) override {
    const T* w = memory_.inputs[1].template as<T>();
    ForPairs(pairs_, [&](int64_t begin, int64_t end) {
      Transforms<T>().filter(w, pairs_, begin, end, backward_, At(filters_));
    });
    ForTeams([&](int team) {
      ForBlocks(tiles_, team, [&](int64_t row, int64_t end) {
        ReadTiles<T>(tiles_, from_, memory_.inputs[0], Transforms<T>().input, row, end, top_, left_,
                     At(inputs_, team));
        product_.Run(team);
        WriteTiles(row, end, At(results_, team));
      });
    });
  }

 private:
  void WriteTiles(int64_t first_row, int64_t end_row, const float* m) const {
    const auto present = [&](size_t i) {
      return !backward_ && i < memory_.inputs.size() && memory_.inputs[i].data != nullptr;
    };
    const float* bias = present(2) ? memory_.inputs[2].template as<float>() : nullptr;
    const T* residual = present(3) ? memory_.inputs[3].template as<T>() : nullptr;
    T* to = memory_.outputs[0].template as<T>();
    const int64_t tile_stride = to_.channels, point_stride = tiles_.per_block() * tile_stride;
    ForRows(tiles_, first_row, end_row, to_.blocks,
            [&](int64_t image, int64_t row, int64_t block, int64_t row_index) {
              if (image < 0) return;
              const int64_t offset = to_.Offset(image, block), channel = block * lanes_;
              Transforms<T>().output(
                  m + row_index * tile_stride + channel, point_stride, tile_stride,
                  {.height = to_.height,
                   .width = to_.width,
                   .y = row * kWinogradTile,
                   .x = 0,
                   .tiles = tiles_.columns},
                  bias == nullptr ? nullptr : bias + channel,
                  residual == nullptr ? nullptr : residual + offset, relu_, to + offset);
            });
  }

  bool backward_, relu_ = false;
  Maps from_, to_;
  int64_t top_ = 0, left_ = 0;
  int64_t pairs_;  // pairs of an input and an output channel
  Tiles tiles_;
  Products product_;
  WorkspacePart filters_, inputs_, results_, scratch_;
};

// Each thread is a team if its sums take no more memory than its tiles; else all are one team.
int TeamsForSums(const OpSpec& spec, int threads) {
  const Shape &x = spec.inputs[0].shape, &dy = spec.inputs[1].shape;
  const int64_t tiles =
      dy[0] * DivideUp(dy[2], kWinogradTile) * DivideUp(dy[3], kWinogradTile) / threads;
  return x[1] * dy[1] <= tiles * (x[1] + dy[1]) ? threads : 1;
}

// dw = G^T (sum over tiles of (B^T x B) * (A dy A^T)) G, and db.
template <typename T>
class WinogradBackwardFilter : public WinogradKernel {
 public:
  WinogradBackwardFilter(const OpSpec& spec, int threads)
      : WinogradKernel(spec, threads, TeamsForSums(spec, threads)),
        x_(spec.inputs[0].shape, lanes_),
        dy_(spec.inputs[1].shape, lanes_),
        pairs_(x_.channels * dy_.channels),
        tiles_(dy_, teams_, kWinogradPoints * (x_.channels + dy_.channels),
               kWinogradPoints * pairs_),
        first_product_(MakeProducts(false)),
        product_(MakeProducts(true)),
        bias_sums_(static_cast<size_t>(teams_ * dy_.channels)) {
    const auto& a = spec.attributes.as<Conv2dAttributes>();
    top_ = a.padding.top;
    left_ = a.padding.left;
    output_layouts_[0] = Layout::Filter();
    output_layouts_[1] = Layout::RowMajor();
    sums_ = ReserveStack(1, pairs_, teams_);
    inputs_ = ReserveStack(tiles_.per_block(), x_.channels, teams_);
    gradients_ = ReserveStack(tiles_.per_block(), dy_.channels, teams_);
    scratch_ = Reserve(std::max(first_product_.scratch_bytes(), product_.scratch_bytes()), teams_);
  }

  void Bind(const KernelMemory& memory) override {
    memory_ = memory;
    for (Products* product : {&first_product_, &product_}) {
      for (int team = 0; team < teams_; ++team) {
        product->AddTeam(At(inputs_, team), At(gradients_, team), At(sums_, team),
                         BytesAt(scratch_, team));
      }
    }
  }

  void Run(const RunContext&) override {
    std::fill(bias_sums_.begin(), bias_sums_.end(), 0);
    ForTeams([&](int team) { SumTiles(team); });
    float* dw = memory_.outputs[0].template as<float>();
    const int64_t busy_teams = DivideUp(tiles_.all_rows, tiles_.rows_per_team);
    ForPairs(pairs_, [&](int64_t begin, int64_t end) {
      Transforms<T>().filter_gradient(At(sums_), busy_teams,
                                      static_cast<int64_t>(sums_.bytes / sizeof(float)), pairs_,
                                      begin, end, dw);
    });
    if (memory_.outputs[1].data != nullptr) WriteBias();
  }

 private:
  Products MakeProducts(bool accumulate) const {
    return {Stack(x_.channels, tiles_.per_block(), true), Stack(tiles_.per_block(), dy_.channels),
            Stack(x_.channels, dy_.channels), accumulate};
  }

  void SumTiles(int team) {
    const Products* product = &first_product_;
    ForBlocks(tiles_, team, [&](int64_t row, int64_t end) {
      ReadTiles<T>(tiles_, x_, memory_.inputs[0], Transforms<T>().input, row, end, top_, left_,
                   At(inputs_, team));
      ReadTiles<T>(tiles_, dy_, memory_.inputs[1], Transforms<T>().gradient, row, end, 0, 0,
                   At(gradients_, team));
      product->Run(team);
      product = &product_;
      if (memory_.outputs[1].data != nullptr)
        AddBias(row, std::min(row + tiles_.rows_per_block, end), team);
    });
  }

  // Adds the pixels of dy in rows [first_row, end_row) of tiles to the team's db.
  void AddBias(int64_t first_row, int64_t end_row, int team) {
    for (int64_t row = first_row; row < end_row; ++row) {
      const int64_t y = row % tiles_.rows * kWinogradTile;
      const int64_t pixels = std::min(kWinogradTile, dy_.height - y) * dy_.width;
      for (int64_t block = 0; block < dy_.blocks; ++block) {
        const T* from = memory_.inputs[1].template as<T>() + dy_.Offset(row / tiles_.rows, block) +
                        y * dy_.width * lanes_;
        Transforms<T>().add_pixels(from, pixels,
                                   bias_sums_.data() + team * dy_.channels + block * lanes_);
      }
    }
  }

  void WriteBias() const {
    float* db = memory_.outputs[1].template as<float>();
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
  WorkspacePart sums_, inputs_, gradients_, scratch_;
};

// The tensors of a forward or backward convolution, by their roles.
struct Task {
  const Conv2dAttributes& attributes;
  const TensorSpec& w;     // the filter or its gradient
  const TensorSpec& from;  // the map that 6x6 tiles are read from: x, or dy for dx
  const TensorSpec& to;    // the map of the 4x4 tiles: y or dx, or dy for dw
  bool has_filter_gradient;
};
Task TaskOf(const OpSpec& spec) {
  const auto& a = spec.attributes.as<Conv2dAttributes>();
  return spec.kind == op::kConv2dBackwardFilter
             ? Task{a, spec.outputs[0], spec.inputs[0], spec.inputs[1], true}
             : Task{a, spec.inputs[1], spec.inputs[0], spec.outputs[0], false};
}

bool IsSupported(const Task& task) {
  const Conv2dAttributes& a = task.attributes;
  const Shape& w = task.w.shape;
  const int64_t lanes = ChannelBlock();
  const DType dtype = task.from.dtype;
  return lanes > 0 && !a.exact && (dtype == DType::kF32 || dtype == DType::kBF16) &&
         task.to.dtype == dtype &&
         task.w.dtype == (task.has_filter_gradient ? DType::kF32 : dtype) && w[2] == 3 &&
         w[3] == 3 && a.stride_h == 1 && a.stride_w == 1 && a.dilation == 1 && a.groups == 1 &&
         w[0] % lanes == 0 && w[1] % lanes == 0;
}

// Whether the CPU computes only 8 lanes at a time: it has AVX2 only, or it executes AVX-512
// instructions in two halves, as Zen 4 does.
bool HasHalfRate() {
  __builtin_cpu_init();
  return ChannelBlock() == 8 || __builtin_cpu_is("amdfam19h");
}

bool IsFaster(const Task& task) {
  const bool narrow = task.from.dtype == DType::kBF16;
  if (narrow && HasIsa(dnnl::cpu_isa::avx512_core_amx))
    return false;  // AMX: products are 16 times as fast
  const Shape &y = task.to.shape, &w = task.w.shape;
  const auto tiles =
      static_cast<double>(y[0] * DivideUp(y[2], kWinogradTile) * DivideUp(y[3], kWinogradTile));
  const auto pixels = static_cast<double>(y[0] * y[2] * y[3]);
  const auto k = static_cast<double>(w[0]), c = static_cast<double>(w[1]);
  // The cost for one tile. The unit is the time of one operation of a direct fp32 convolution,
  // which has 18 operations for each pixel and pair of channels. The three terms of winograd_cost
  // are the products for 36 points, the transforms of the maps for each channel, and the transfer
  // of the transformed filters through memory. The factors were measured on a Zen 5. On CPUs of
  // half the rate, an operation takes twice as long and memory is as fast, so memory costs half as
  // much in this unit. On a Zen 4, the estimated ratio is within a fifth of the measured one.
  const double memory = HasHalfRate() ? 0.5 : 1;
  const double direct_cost = 18 * pixels / tiles * k * c;
  const double winograd_cost = 85 * k * c + memory * (3000 * (k + c) + 9000 * k * c / tiles);
  // A direct bf16 convolution takes half the time of an fp32 one if the CPU has bf16 instructions,
  // and longer than an fp32 one if they are emulated. Beyond that, Winograd must be faster by a
  // margin to be worth its larger rounding errors.
  const bool is_halved = narrow && HasIsa(dnnl::cpu_isa::avx512_core_bf16);
  return direct_cost > (is_halved ? 2.1 : 1.3) * winograd_cost;
}

// Whether Winograd's algorithm computes this convolution or gradient of one. The answer depends on
// shapes, precision and kind of CPU only, so that all ranks and runs compute in the same way.
bool UsesWinograd(const OpSpec& spec, const Cpu& cpu) {
  if (cpu.winograd == Winograd::kNever || !SupportsTypes(spec, cpu) || HasReluYInput(spec))
    return false;
  const Task task = TaskOf(spec);
  return IsSupported(task) && (cpu.winograd == Winograd::kIfPossible || IsFaster(task));
}

constexpr KernelRow kRows[] = {
    {.kind = op::kConv2d,
     .make = MakeTyped<WinogradConv2d>,
     .supports = UsesWinograd,
     .priority = 2},
    {.kind = op::kConv2dBackwardData,
     .make = MakeTyped<WinogradConv2d>,
     .supports = UsesWinograd,
     .priority = 2},
    {.kind = op::kConv2dBackwardFilter,
     .make = MakeTyped<WinogradBackwardFilter>,
     .supports = UsesWinograd,
     .priority = 2},
};

}  // namespace

KernelRows WinogradKernels() { return kRows; }

}  // namespace carole::onednn
