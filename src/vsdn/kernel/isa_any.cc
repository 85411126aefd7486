// For every processor.
#define VSDN_ISA vsdn_any
#define VSDN_BYTES 16
#include "paths.h"
