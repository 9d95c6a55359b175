package sandbox

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// The three quantities people write: sizes, CPU shares and durations. Every
// door parses them here, so that "512Mi" means the same in the API, in the
// command line and in a configuration file. The errors say what is allowed and
// leave out which field it was: the caller knows that, and names it.

// maxQuantity bounds the length of anything that is parsed here.
const maxQuantity = 40

var errTooLong = errors.New("is too long")

// byteUnits are the suffixes of sizes: the binary ones of Kubernetes, and the
// decimal ones. A trailing B is allowed after each.
var byteUnits = map[string]int64{
	"":   1,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50,
	"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
}

// ParseBytes reads a size: "512Mi", "1Gi", "1.5G", or bare bytes. A fraction
// of a byte is cut off.
func ParseBytes(s string) (int64, error) {
	if len(s) > maxQuantity {
		return 0, errTooLong
	}
	number, unit := splitNumber(s)
	factor, ok := byteUnits[strings.TrimSuffix(unit, "B")]
	if !ok || number == "" {
		return 0, fmt.Errorf("%q is not a size; write a number with Ki, Mi or Gi, such as 512Mi or 2Gi", s)
	}
	n, err := scale(number, factor)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%q is larger than any size can be", s)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a size; write a number with Ki, Mi or Gi, such as 512Mi or 2Gi", s)
	}
	return n, nil
}

// FormatBytes writes a size with the largest binary unit that is exact, so
// that ParseBytes gives n back.
func FormatBytes(n int64) string {
	for _, unit := range []string{"Pi", "Ti", "Gi", "Mi", "Ki"} {
		if f := byteUnits[unit]; n != 0 && n%f == 0 {
			return strconv.FormatInt(n/f, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// ParseCPU reads a CPU share and returns thousandths of a core: "500m" is 500,
// "0.5" is 500, "2" is 2000. Less than a thousandth is cut off.
func ParseCPU(s string) (int64, error) {
	if len(s) > maxQuantity {
		return 0, errTooLong
	}
	number, unit := splitNumber(s)
	factor, ok := map[string]int64{"m": 1, "": 1000}[unit]
	var n int64
	err := strconv.ErrSyntax
	if ok && number != "" {
		n, err = scale(number, factor)
	}
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%q is more than any machine has", s)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not an amount of CPU; write millicores or cores, such as 500m, 0.5 or 2", s)
	}
	return n, nil
}

// FormatCPU writes thousandths of a core as ParseCPU reads them: "500m".
func FormatCPU(millis int64) string { return strconv.FormatInt(millis, 10) + "m" }

// ParseDuration reads a duration that is not negative: "30s", "10m", "1h30m",
// "7d", "0s". A number without a unit is refused, but for "0".
func ParseDuration(s string) (time.Duration, error) {
	if len(s) > maxQuantity {
		return 0, errTooLong
	}
	if s == "0" {
		return 0, nil
	}
	bad := fmt.Errorf("%q is not a duration; write a number with s, m, h or d, such as 30s, 10m or 1h30m", s)
	if s == "" {
		return 0, bad
	}
	var total time.Duration
	for rest := s; rest != ""; {
		number, tail := splitNumber(rest)
		end := strings.IndexAny(tail, "0123456789.")
		if end < 0 {
			end = len(tail)
		}
		unit, ok := map[string]time.Duration{
			"ns": time.Nanosecond, "us": time.Microsecond, "ms": time.Millisecond,
			"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
		}[tail[:end]]
		if !ok || number == "" {
			return 0, bad
		}
		n, err := scale(number, int64(unit))
		if errors.Is(err, strconv.ErrRange) || n > math.MaxInt64-int64(total) {
			return 0, fmt.Errorf("%q is longer than any duration can be", s)
		}
		if err != nil {
			return 0, bad
		}
		total += time.Duration(n)
		rest = tail[end:]
	}
	return total, nil
}

// FormatDuration writes a duration as ParseDuration reads it, without the
// units that are zero: "10m", "1h30m", "0s".
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return strings.ReplaceAll(s, "µ", "u")
}

// splitNumber cuts s after its leading digits and points.
func splitNumber(s string) (number, rest string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	return s[:i], s[i:]
}

// scale multiplies a decimal number by factor without losing a digit, and cuts
// off what is behind the point. The error is strconv.ErrSyntax or ErrRange.
func scale(number string, factor int64) (int64, error) {
	if strings.Count(number, ".") > 1 || strings.Trim(number, ".") == "" {
		return 0, strconv.ErrSyntax
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, strconv.ErrSyntax
	}
	r.Mul(r, new(big.Rat).SetInt64(factor))
	n := new(big.Int).Quo(r.Num(), r.Denom())
	if !n.IsInt64() {
		return 0, strconv.ErrRange
	}
	return n.Int64(), nil
}
