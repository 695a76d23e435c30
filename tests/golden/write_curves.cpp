// golden_curves FASTA FOLDER: writes the curve of every format into FOLDER. For tools/renew_golden.

#include <exception>
#include <iostream>

#include "curve.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "reference_model.h"

int main(int argc, char** argv) {
  using namespace mantissa;
  if (argc != 3) {
    std::cerr << "usage: golden_curves FASTA FOLDER\n";
    return 2;
  }
  try {
    const std::string bases = golden::bases_of_fasta(read_file(argv[1]));
    for (numerics::Format format : golden::kCurveFormats) {
      replace_file(concat(argv[2], "/", to_string(format), ".txt"),
                   golden::curve_text(format, bases));
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
