// F(4x4, 3x3): tiles and filters are transformed (winograd_vector.h), multiplied point by point,
// which for all channels are 36 matrix products, the library's, and transformed back. Blocks of
// tiles pass through all three, as many as caches or the filters' size make worth while.
#include "src/backend/onednn/winograd/winograd.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "src/backend/onednn/winograd/winograd_kernel.h"
#include "src/core/divide_up.h"

namespace carole::onednn {

namespace simd_v3 {  // 8 lanes
extern const WinogradTransforms<float> kWinogradFloats;
extern const WinogradTransforms<Bf16> kWinogradBf16s;
}  // namespace simd_v3
namespace simd_v4 {  // 16
extern const WinogradTransforms<float> kWinogradFloats;
extern const WinogradTransforms<Bf16> kWinogradBf16s;
}  // namespace simd_v4

namespace {

// Whose lanes are the channels of a block: the library's choice decides, not only the CPU.
template <typename T>
const WinogradTransforms<T>& Transforms() {
  static const bool wide = ChannelBlock() == 16;
  if constexpr (std::is_same_v<T, Bf16>) {
    return wide ? simd_v4::kWinogradBf16s : simd_v3::kWinogradBf16s;
  } else {
    return wide ? simd_v4::kWinogradFloats : simd_v3::kWinogradFloats;
  }
}

// y = conv(x, w) and dx = conv(dy, w turned round with its channels exchanged).
template <typename T>
class WinogradConv2d : public WinogradKernel {
 public:
  WinogradConv2d(const OpSpec& spec, int threads)
      : WinogradKernel(spec, threads, threads),
        backward_(spec.kind == OpKind::kConv2dBackwardData),
        from_(spec.inputs[0].shape, lanes_),
        to_(spec.outputs[0].shape, lanes_),
        pairs_(from_.channels * to_.channels),
        tiles_(to_, threads, kWinogradPoints * (from_.channels + to_.channels),
               kWinogradPoints * pairs_),
        product_(Stack(tiles_.per_block(), from_.channels),
                 Stack(from_.channels, to_.channels, backward_),
                 Stack(tiles_.per_block(), to_.channels), false) {
    const auto& a = spec.attributes_as<Conv2dAttributes>();
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
    const int64_t pitch = to_.channels, apart = tiles_.per_block() * pitch;
    ForRows(tiles_, first_row, end_row, to_.blocks,
            [&](int64_t image, int64_t row, int64_t block, int64_t place) {
              if (image < 0) return;
              const int64_t offset = to_.Offset(image, block), channel = block * lanes_;
              Transforms<T>().output(m + place * pitch + channel, apart, pitch,
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
      dy[0] * DivideUp(dy[2], kWinogradTile) * DivideUp(dy[3], kWinogradTile) / threads;
  return x[1] * dy[1] <= tiles * (x[1] + dy[1]) ? threads : 1;
}

// dw = G^T (sum over tiles of (B^T x B) (A dy A^T)) G, the transpose of the forward pass, and db.
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
  Products MakeProducts(bool adds) const {
    return {Stack(x_.channels, tiles_.per_block(), true), Stack(tiles_.per_block(), dy_.channels),
            Stack(x_.channels, dy_.channels), adds};
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

  // The sums of dy's pixels in such rows of tiles.
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
  Place sums_, inputs_, gradients_, scratch_;
};

struct Task {
  const Conv2dAttributes& attributes;
  const TensorSpec &w, &from, &to;  // filter, or its gradient; x or dy; y, dx or dy
  bool has_filter_gradient;
};
Task TaskOf(const OpSpec& spec) {
  const auto& a = spec.attributes_as<Conv2dAttributes>();
  return spec.kind == OpKind::kConv2dBackwardFilter
             ? Task{a, spec.outputs[0], spec.inputs[0], spec.inputs[1], true}
             : Task{a, spec.inputs[1], spec.inputs[0], spec.outputs[0], false};
}

bool CanMake(const Task& task) {
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

// Whether the CPU has 8 lanes, or takes 16 in two halves, as Zen 4 does.
bool HasHalfRate() {
  __builtin_cpu_init();
  return ChannelBlock() == 8 || __builtin_cpu_is("amdfam19h");
}

bool IsFaster(const Task& task) {
  const bool narrow = task.from.dtype == DType::kBF16;
  if (narrow && HasIsa(dnnl::cpu_isa::avx512_core_amx)) return false;  // products 16 times as fast
  const Shape &y = task.to.shape, &w = task.w.shape;
  const auto tiles =
      static_cast<double>(y[0] * DivideUp(y[2], kWinogradTile) * DivideUp(y[3], kWinogradTile));
  const auto pixels = static_cast<double>(y[0] * y[2] * y[3]);
  const auto k = static_cast<double>(w[0]), c = static_cast<double>(w[1]);
  // For a tile, in the time of one operation of a direct convolution in fp32, which has 18 for each
  // pixel and pair of channels. Measured on a Zen 5: products of 36 points, transforms of each
  // channel, and the transformed filters' way through memory. At half the rate an operation takes
  // twice as long; memory does not. On a Zen 4 the ratio is the measured one's within a fifth.
  const double memory = HasHalfRate() ? 0.5 : 1;
  const double direct = 18 * pixels / tiles * k * c;
  const double ours = 85 * k * c + memory * (3000 * (k + c) + 9000 * k * c / tiles);
  // In bf16 a direct one takes half the time, or longer than in fp32 where it is emulated. The rest
  // of these factors is what ours must win to be worth its rounding.
  const bool is_halved = narrow && HasIsa(dnnl::cpu_isa::avx512_core_bf16);
  return direct > (is_halved ? 2.1 : 1.3) * ours;
}

}  // namespace

bool WantsWinograd(const OpSpec& spec, Winograd use) {
  const bool is_conv2d = std::holds_alternative<Conv2dAttributes>(spec.attributes);
  if (!is_conv2d || use == Winograd::kNever) return false;
  const Task task = TaskOf(spec);
  return CanMake(task) && (use == Winograd::kWherePossible || IsFaster(task));
}

std::unique_ptr<Kernel> MakeWinograd(const OpSpec& spec, int threads) {
  return spec.kind == OpKind::kConv2dBackwardFilter
             ? MakeTyped<WinogradBackwardFilter>(spec, threads)
             : MakeTyped<WinogradConv2d>(spec, threads);
}

}  // namespace carole::onednn
