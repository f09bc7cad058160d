// libjpeg reports errors with longjmp. So each function below that calls setjmp has no local object
// with a destructor, and its caller owns the memory.
#include "io/image/jpeg.h"

#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
// jpeglib.h needs FILE and size_t.
#include <jerror.h>
#include <jpeglib.h>

#include "io/image/jpeg/baseline.h"
#include "src/core/check.h"
#include "src/core/divide_up.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// libjpeg keeps all coefficients of a progressive image in memory: six bytes per pixel, or three
// with 4:2:0 chroma. A larger image is refused.
constexpr long kMaxDecoderBytes = 256L << 20;
// Encoders write about ten scans. Each scan takes time for the whole image, even if its data are
// short, so a file with many tiny scans could take forever.
constexpr int kMaxScans = 100;
// Chroma upsampling makes the edge pixels of a region depend on this many pixels outside of it.
constexpr int kMarginColumns = 2;
constexpr int kMarginRows = 1;

// Whether there is an end marker after the header. The header itself, which is not searched, may
// hold one in a thumbnail.
bool HasEndMarker(const JOCTET* data, size_t size) {
  for (size_t i = size; i >= 2; --i) {
    if (data[i - 2] == 0xff && data[i - 1] == JPEG_EOI) return true;
  }
  return false;
}

// libjpeg's fast triangular upsampling needs more columns of chroma than this.
constexpr JDIMENSION kNarrow = 2;

jpeg::HuffmanCode ToCode(const JHUFF_TBL& table) {
  jpeg::HuffmanCode code;
  std::copy_n(table.bits + 1, 16, code.counts.begin() + 1);
  std::copy_n(table.huffval, 256, code.symbols.begin());
  return code;
}

// Whether the components and their sampling factors are among those that io/image/jpeg decodes.
bool HasSupportedLayout(const jpeg_decompress_struct& jpeg) {
  const jpeg_component_info* c = jpeg.comp_info;
  if (jpeg.jpeg_color_space == JCS_GRAYSCALE) return jpeg.num_components == 1;
  if (jpeg.jpeg_color_space != JCS_YCbCr || jpeg.num_components != 3) return false;
  for (int i = 1; i < 3; ++i) {
    if (c[i].h_samp_factor != 1 || c[i].v_samp_factor != 1) return false;
  }
  if (c[0].h_samp_factor == 1) return c[0].v_samp_factor == 1;
  return c[0].h_samp_factor == 2 && c[0].v_samp_factor <= 2 && jpeg.image_width > 2 * kNarrow;
}

// Fills `scan` from the header that libjpeg has read. Returns false if io/image/jpeg does not
// support the image.
bool ToBaselineScan(const jpeg_decompress_struct& jpeg, jpeg::BaselineScan* scan) {
  const bool is_baseline = !jpeg.progressive_mode && !jpeg.arith_code && jpeg.data_precision == 8 &&
                           jpeg.Ss == 0 && jpeg.Se == 63 && jpeg.Ah == 0 && jpeg.Al == 0;
  if (!is_baseline || !HasSupportedLayout(jpeg) || jpeg.comps_in_scan != jpeg.num_components)
    return false;
  for (int i = 0; i < jpeg.num_components; ++i) {
    const jpeg_component_info& component = jpeg.comp_info[i];
    // libjpeg checks these numbers only later, so they may be out of range here.
    if (component.quant_tbl_no >= NUM_QUANT_TBLS || component.dc_tbl_no >= NUM_HUFF_TBLS ||
        component.ac_tbl_no >= NUM_HUFF_TBLS)
      return false;
    const JQUANT_TBL* quantizers = jpeg.quant_tbl_ptrs[component.quant_tbl_no];
    const JHUFF_TBL* dc = jpeg.dc_huff_tbl_ptrs[component.dc_tbl_no];
    const JHUFF_TBL* ac = jpeg.ac_huff_tbl_ptrs[component.ac_tbl_no];
    if (quantizers == nullptr || dc == nullptr || ac == nullptr ||
        jpeg.cur_comp_info[i] != &component)
      return false;
    jpeg::BaselineComponent& to = scan->components[i];
    std::copy_n(quantizers->quantval, 64, to.quantizers.begin());
    to.dc = ToCode(*dc);
    to.ac = ToCode(*ac);
  }
  // With a single component an MCU is one block, whatever the sampling factors are.
  const bool is_gray = jpeg.num_components == 1;
  scan->height = static_cast<int>(jpeg.image_height);
  scan->width = static_cast<int>(jpeg.image_width);
  scan->num_components = jpeg.num_components;
  scan->horizontal = is_gray ? 1 : jpeg.comp_info[0].h_samp_factor;
  scan->vertical = is_gray ? 1 : jpeg.comp_info[0].v_samp_factor;
  scan->restart_interval = static_cast<int>(jpeg.restart_interval);
  scan->bytes = {reinterpret_cast<const char*>(jpeg.src->next_input_byte),
                 jpeg.src->bytes_in_buffer};
  return true;
}

// Whether one of libjpeg's warnings means damaged codes. Other warnings, such as stray bytes
// between markers, leave a usable image.
bool IsDamage(int warning) {
  return warning == JWRN_HUFF_BAD_CODE || warning == JWRN_HIT_MARKER || warning == JWRN_MUST_RESYNC;
}

}  // namespace

class JpegDecoder::Impl {
 public:
  Impl() {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr jpeg) { Jump(jpeg); };
    errors_.emit_message = [](j_common_ptr jpeg, int level) {
      const int code = jpeg->err->msg_code;
      const auto* self = static_cast<const Impl*>(jpeg->client_data);
      if (level < 0 && (code == JWRN_JPEG_EOF || (self->reject_damage_ && IsDamage(code))))
        Jump(jpeg);
    };
    progress_.progress_monitor = [](j_common_ptr jpeg) {
      if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
      auto* self = static_cast<Impl*>(jpeg->client_data);
      std::snprintf(self->message_, sizeof self->message_, "more than %d scans", kMaxScans);
      longjmp(self->jump_, 1);
    };
    jpeg_.client_data = this;
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { jpeg_destroy_decompress(&jpeg_); }

  int height() const { return static_cast<int>(jpeg_.image_height); }
  int width() const { return static_cast<int>(jpeg_.image_width); }
  bool used_libjpeg() const { return used_libjpeg_; }

  void Open(std::string_view bytes, const JpegOptions& options) {
    channels_ = options.channels;
    reject_damage_ = options.reject_damage;
    only_libjpeg_ = options.only_libjpeg || reject_damage_;
    if (!ReadHeader(bytes)) Fail();
    cmyk_ = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    if (cmyk_ && channels_ == 1)
      throw DataError("[io.image] jpeg: cannot be decoded to gray: got CMYK, want gray or color");
    CheckImageSize("jpeg", jpeg_.image_height, jpeg_.image_width);
    if (!HasEndMarker(jpeg_.src->next_input_byte, jpeg_.src->bytes_in_buffer)) {
      throw DataError(fmt::format("[io.image] jpeg: truncated: got {} bytes without an end marker",
                                  bytes.size()));
    }
    jpeg_.out_color_space = cmyk_ ? JCS_CMYK : channels_ == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_.dct_method = options.dct_method == DctMethod::kIntegerFast ? JDCT_IFAST : JDCT_ISLOW;
    jpeg_.do_fancy_upsampling = TRUE;
  }

  void Decode(const Region& region, Image* image, int divisor) {
    CAROLE_CHECK(region.top >= 0 && region.left >= 0 && region.height > 0 && region.width > 0 &&
                     region.top + region.height <= DivideUp(height(), divisor) &&
                     region.left + region.width <= DivideUp(width(), divisor),
                 "region of {}x{} at ({}, {}) in an image of {}x{} / {}", region.height,
                 region.width, region.top, region.left, height(), width(), divisor);
    AllocateImage("jpeg", region.height, region.width, channels_, image);
    uint8_t* const out = image->pixels.data();
    used_libjpeg_ = only_libjpeg_ || jpeg_.dct_method != JDCT_IFAST ||
                    !ToBaselineScan(jpeg_, &scan_) ||
                    !baseline_.Decode(scan_, {region, divisor, channels_}, out);
    if (!used_libjpeg_) {
      jpeg_abort_decompress(&jpeg_);
      return;
    }
    jpeg_.scale_num = 1;
    jpeg_.scale_denom = divisor;
    row_.resize(size_t{jpeg_.image_width} * 4);  // four: CMYK
    if (!ReadRegion(region, out)) Fail();
  }

 private:
  static void Jump(j_common_ptr jpeg) {
    auto* self = static_cast<Impl*>(jpeg->client_data);
    if (jpeg->err->msg_code == JERR_NO_BACKING_STORE) {
      std::snprintf(self->message_, sizeof self->message_,
                    "needs more than %ld MiB for several scans; save it as a baseline JPEG",
                    kMaxDecoderBytes >> 20);
    } else {
      jpeg->err->format_message(jpeg, self->message_);
    }
    longjmp(self->jump_, 1);
  }

  // Reads the header with a new decompressor: a decompressor that is used again would give the
  // tables of the previous image to an image that lacks them. Returns false after an error.
  bool ReadHeader(std::string_view bytes) {
    if (setjmp(jump_) != 0) return false;
    jpeg_destroy_decompress(&jpeg_);
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &progress_;
    jpeg_.mem->max_memory_to_use = kMaxDecoderBytes;
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&jpeg_, TRUE);
    return true;
  }

  // Decodes a region with libjpeg. Returns false after an error.
  bool ReadRegion(const Region& region, uint8_t* const out) {
    if (setjmp(jump_) != 0) return false;
    jpeg_start_decompress(&jpeg_);
    const bool is_whole = HasBlockSmoothing();
    const JDIMENSION left = is_whole ? 0 : CropColumns(region);
    if (!is_whole && region.top > kMarginRows)
      jpeg_skip_scanlines(&jpeg_, region.top - kMarginRows);
    while (static_cast<int>(jpeg_.output_scanline) < region.top + region.height)
      ReadRow(region, region.left - static_cast<int>(left), out);
    if (reject_damage_ && jpeg_.output_scanline == jpeg_.output_height)
      jpeg_finish_decompress(&jpeg_);
    jpeg_abort_decompress(&jpeg_);
    return true;
  }

  // Whether libjpeg estimates coefficients that the scans left incomplete from neighboring blocks
  // ("block smoothing"). At the edges of a cropped region it would use other neighbors than in the
  // whole image.
  bool HasBlockSmoothing() const {
    constexpr int kSmoothedCoefficients = 10;
    if (!jpeg_.progressive_mode || jpeg_.coef_bits == nullptr) return false;
    return std::any_of(jpeg_.coef_bits, jpeg_.coef_bits + jpeg_.num_components,
                       [](const int* bits) {
                         return std::any_of(bits + 1, bits + kSmoothedCoefficients,
                                            [](int left) { return left != 0; });
                       });
  }

  // Reads libjpeg's next row, which has `surplus` columns before the region's first column, and
  // copies the region's part to `out`.
  void ReadRow(const Region& region, int surplus, uint8_t* out) {
    const int y = static_cast<int>(jpeg_.output_scanline) - region.top;
    const size_t row_bytes = static_cast<size_t>(region.width) * channels_;
    uint8_t* to = out + y * static_cast<ptrdiff_t>(row_bytes);
    const bool direct = y >= 0 && !cmyk_ && region.width == static_cast<int>(jpeg_.output_width);
    JSAMPROW row = direct ? to : row_.data();
    jpeg_read_scanlines(&jpeg_, &row, 1);
    if (y < 0 || direct) return;
    if (cmyk_) {
      CmykToRgb(row_.data() + ptrdiff_t{surplus} * 4, region.width, to);
    } else {
      std::memcpy(to, row_.data() + ptrdiff_t{surplus} * channels_, row_bytes);
    }
  }

  // Restricts libjpeg to the columns that the region needs. Returns the first column of its rows.
  JDIMENSION CropColumns(const Region& region) {
    const int first = std::max(region.left - kMarginColumns, 0);
    const int end =
        std::min(region.left + region.width + kMarginColumns, static_cast<int>(jpeg_.output_width));
    JDIMENSION left = first;
    JDIMENSION columns = end - first;
    if (columns < jpeg_.output_width) jpeg_crop_scanline(&jpeg_, &left, &columns);
    return left;
  }

  void CmykToRgb(const uint8_t* in, int count, uint8_t* out) const {
    const int invert = jpeg_.saw_Adobe_marker ? 0 : 255;  // Adobe stores 255 - ink
    for (int x = 0; x < count; ++x, in += 4, out += 3) {
      for (int c = 0; c < 3; ++c) {
        out[c] = static_cast<uint8_t>((in[c] ^ invert) * (in[3] ^ invert) / 255);
      }
    }
  }

  [[noreturn]] void Fail() {
    jpeg_abort_decompress(&jpeg_);
    throw DataError(fmt::format("[io.image] jpeg: cannot be decoded: {}", message_));
  }

  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jmp_buf jump_;
  char message_[JMSG_LENGTH_MAX] = {};
  int channels_ = 3;
  bool cmyk_ = false;
  bool reject_damage_ = false;
  bool only_libjpeg_ = false;
  bool used_libjpeg_ = false;
  std::vector<uint8_t> row_;
  jpeg::BaselineScan scan_;
  jpeg::BaselineDecoder baseline_;
};

JpegDecoder::JpegDecoder() : impl_(std::make_unique<Impl>()) {}
JpegDecoder::~JpegDecoder() = default;
void JpegDecoder::Open(std::string_view bytes, const JpegOptions& options) {
  impl_->Open(bytes, options);
}
int JpegDecoder::height() const { return impl_->height(); }
int JpegDecoder::width() const { return impl_->width(); }
bool JpegDecoder::used_libjpeg() const { return impl_->used_libjpeg(); }
void JpegDecoder::Decode(const Region& region, Image* image, int divisor) {
  impl_->Decode(region, image, divisor);
}

void DecodeJpeg(std::string_view bytes, int channels, Image* image, DctMethod dct_method,
                bool reject_damage) {
  thread_local JpegDecoder decoder;
  decoder.Open(bytes,
               {.channels = channels, .dct_method = dct_method, .reject_damage = reject_damage});
  decoder.Decode({.height = decoder.height(), .width = decoder.width()}, image);
}

int JpegChannels(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  // Segments have the form FF MARKER LENGTH(2) ...; the length includes its own two bytes.
  for (size_t i = 2; i + 9 < bytes.size();) {
    if (byte(i) != 0xff) return 0;
    const int marker = byte(i + 1);
    const bool is_frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (is_frame) return byte(i + 9);
    const bool is_fill = marker == 0xff;
    i += is_fill ? 1 : size_t{2} + byte(i + 2) * 256 + byte(i + 3);
  }
  return 0;
}

}  // namespace carole::io
