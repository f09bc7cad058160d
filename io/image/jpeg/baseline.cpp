#include "io/image/jpeg/baseline.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "io/image/jpeg/mcu_reader.h"
#include "io/image/jpeg/plane.h"
#include "src/core/divide_up.h"
#include "src/core/simd.h"

namespace carole::io::jpeg {
namespace {

// Units [first, end) of one direction.
struct Range {
  int first = 0;
  int end = 0;

  int count() const { return end - first; }
};

// Those that samples [begin, begin + count) of `size` need; upsampling looks one further.
Range UnitsOf(int begin, int count, int size, int unit, bool upsampled) {
  const int margin = upsampled ? 1 : 0;
  return {std::max(begin - margin, 0) / unit,
          (std::min(begin + count + margin, size) - 1) / unit + 1};
}

}  // namespace

class BaselineDecoder::Impl {
 public:
  Impl()
      : kernels_(PickSimd(simd_v2::MakePixelKernels, simd_v3::MakePixelKernels,
                          simd_v4::MakePixelKernels)()) {}

  bool Decode(const BaselineScan& scan, const Wanted& wanted, uint8_t* out) {
    const Region& window = window_ = wanted.window;
    channels_ = wanted.channels;
    divisor_ = wanted.divisor;
    num_planes_ = channels_ == 1 ? 1 : scan.num_components;
    halved_columns_ = num_planes_ > 1 && divisor_ == 1 && scan.horizontal == 2;
    halved_rows_ = num_planes_ > 1 && divisor_ == 1 && scan.vertical == 2;
    const int unit_width = scan.horizontal * 8 / divisor_;
    const int unit_height = scan.vertical * 8 / divisor_;
    columns_ = UnitsOf(window.left, window.width, DivideUp(scan.width, divisor_), unit_width,
                       halved_columns_);
    const Range rows = UnitsOf(window.top, window.height, DivideUp(scan.height, divisor_),
                               unit_height, halved_rows_);
    if (!Open(scan)) return false;
    const int units_per_row = DivideUp(scan.width, scan.horizontal * 8);
    if (!units_.Skip(int64_t{rows.first} * units_per_row + columns_.first)) return false;
    next_row_ = window.top;
    for (int row = rows.first; row < rows.end; ++row) {
      if (!DecodeUnits(row)) return false;
      const bool is_last = row + 1 == rows.end;
      if (!is_last && !units_.Skip(units_per_row - columns_.count())) return false;
      // The last row waits for the chroma below it.
      const int known = (row + 1) * unit_height - (halved_rows_ ? 1 : 0);
      WriteRows(is_last ? window.top + window.height : known, out);
    }
    return true;
  }

 private:
  struct Tables {
    DcTable dc;
    AcTable ac;
  };

  bool Open(const BaselineScan& scan) {
    Mcu unit;
    for (int c = 0; c < scan.num_components; ++c) {
      const Tables* tables = MakeTables(scan, c);
      if (tables == nullptr) return false;
      const bool is_luma = c == 0;
      const int h = is_luma ? 1 : scan.horizontal, v = is_luma ? 1 : scan.vertical;
      const Plane::Shape shape{.width = DivideUp(scan.width, std::max(divisor_, h)),
                               .height = DivideUp(scan.height, std::max(divisor_, v)),
                               .box_width = std::max(divisor_ / h, 1),
                               .box_height = std::max(divisor_ / v, 1),
                               .unit_columns = is_luma ? scan.horizontal : 1,
                               .unit_rows = is_luma ? scan.vertical : 1,
                               .first_unit = columns_.first,
                               .units = columns_.count()};
      if (c < num_planes_) planes_[c].Open(shape, scan.components[c].quantizers);
      for (int row = 0; row < shape.unit_rows; ++row) {
        for (int column = 0; column < shape.unit_columns; ++column) {
          McuBlock& block = unit.blocks[unit.num_blocks++];
          if (c < num_planes_) block = planes_[c].BlockAt(row, column);
          block.dc_table = &tables->dc;
          block.ac_table = &tables->ac;
          block.component = c;
        }
      }
    }
    units_.Open(scan.bytes, scan.restart_interval, unit);
    return true;
  }

  // The tables of a component; those of the one before when it has the same codes.
  const Tables* MakeTables(const BaselineScan& scan, int c) {
    const BaselineComponent& component = scan.components[c];
    if (c == 2 && component.dc == scan.components[1].dc && component.ac == scan.components[1].ac)
      return &tables_[1];
    Tables& tables = tables_[c];
    const bool made = MakeDcTable(component.dc, tables.dc) && MakeAcTable(component.ac, tables.ac);
    return made ? &tables : nullptr;
  }

  // The wanted units of a row.
  bool DecodeUnits(int row) {
    for (int unit = 0; unit < columns_.count(); unit += Plane::kChunk) {
      const int count = std::min(Plane::kChunk, columns_.count() - unit);
      if (!units_.Keep(count)) return false;
      for (int c = 0; c < num_planes_; ++c) planes_[c].Transform(kernels_, row, unit, count);
    }
    for (int c = 1; c < num_planes_ && halved_columns_; ++c) planes_[c].ExtendSideways(row);
    return true;
  }

  // The window's rows above row `end` that have not been written yet.
  void WriteRows(int end, uint8_t* out) {
    end = std::min(end, window_.top + window_.height);
    const ptrdiff_t row_bytes = ptrdiff_t{window_.width} * channels_;
    for (; next_row_ < end; ++next_row_)
      WriteRow(next_row_, out + (next_row_ - window_.top) * row_bytes);
  }

  void WriteRow(int y, uint8_t* out) {
    const uint8_t* luma = planes_[0].Row(y) + window_.left;
    if (channels_ == 1) {
      std::memcpy(out, luma, window_.width);
    } else if (num_planes_ == 1) {
      kernels_.gray_to_rgb(luma, window_.width, out);
    } else {
      kernels_.to_rgb(luma, ChromaRow(1, y), ChromaRow(2, y), window_.width, out);
    }
  }

  // Chroma beside row y of luma, from the window's first column on.
  const uint8_t* ChromaRow(int c, int y) {
    const Plane& plane = planes_[c];
    if (!halved_columns_) return plane.Row(y) + window_.left;
    const int first = window_.left / 2;
    const int count = (window_.left + window_.width - 1) / 2 - first + 1;
    std::vector<uint8_t>& row = chroma_rows_[c - 1];
    row.resize(size_t{2} * count + kRowMargin);
    if (halved_rows_) {
      kernels_.upsample_both(plane.Row(y / 2) + first,
                             plane.Row(y / 2 + (y % 2 == 0 ? -1 : 1)) + first, count, row.data());
    } else {
      kernels_.upsample_columns(plane.Row(y) + first, count, row.data());
    }
    return row.data() + window_.left % 2;
  }

  PixelKernels kernels_;
  Region window_;
  int channels_ = 3;
  int divisor_ = 1;
  int num_planes_ = 3;
  bool halved_columns_ = false;
  bool halved_rows_ = false;
  Range columns_;
  int next_row_ = 0;
  std::array<Tables, 3> tables_;
  std::array<Plane, 3> planes_;
  McuReader units_;
  std::array<std::vector<uint8_t>, 2> chroma_rows_;
};

BaselineDecoder::BaselineDecoder() : impl_(std::make_unique<Impl>()) {}
BaselineDecoder::~BaselineDecoder() = default;
bool BaselineDecoder::Decode(const BaselineScan& scan, const Wanted& wanted, uint8_t* out) {
  return impl_->Decode(scan, wanted, out);
}

}  // namespace carole::io::jpeg
