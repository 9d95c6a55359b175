package sshgw

import (
	"fmt"
	"slices"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/cpu"
)

// The algorithms offered. Nothing with SHA-1, NIST key exchange, CBC or, but
// for Config.Compat, encrypt-and-MAC; strict key exchange (against Terrapin) is
// always on.
func keyExchanges() []string {
	return []string{gossh.KeyExchangeMLKEM768X25519, gossh.KeyExchangeCurve25519}
}

func ciphers() []string {
	return []string{gossh.CipherChaCha20Poly1305, gossh.CipherAES256GCM, gossh.CipherAES128GCM, gossh.CipherAES256CTR}
}

// macs are encrypt-then-MAC only; for compatibility with libssh2 before 1.11
// (curl of Debian 12) and clients as old, which have none of these, the same
// hashes in the order of RFC 4253 come last.
func macs(compat bool) []string {
	offer := []string{gossh.HMACSHA256ETM, gossh.HMACSHA512ETM}
	if compat {
		offer = append(offer, gossh.HMACSHA256, gossh.HMACSHA512)
	}
	return offer
}

func userKeyAlgorithms() []string {
	return []string{
		gossh.KeyAlgoED25519, gossh.KeyAlgoSKED25519, gossh.KeyAlgoSKECDSA256,
		gossh.KeyAlgoECDSA256, gossh.KeyAlgoECDSA384, gossh.KeyAlgoECDSA521,
		gossh.KeyAlgoRSASHA256, gossh.KeyAlgoRSASHA512,
	}
}

// fastCiphers are the AES-GCM ciphers: with AES instructions nearly twice as
// fast as chacha20-poly1305 in Go's implementation.
func fastCiphers() []string { return []string{gossh.CipherAES128GCM, gossh.CipherAES256GCM} }

// cpuHasAES reports whether this machine computes AES-GCM in hardware.
func cpuHasAES() bool {
	return cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ || cpu.ARM64.HasAES && cpu.ARM64.HasPMULL ||
		cpu.S390X.HasAES && cpu.S390X.HasAESGCM
}

// chooseCiphers returns the ciphers to offer to a client whose own offer is
// known (nil: it is not). The client's order decides, and OpenSSH's puts
// chacha20 first, so AES-GCM is only taken where nothing else is offered.
// Doing that to a client that has AES-GCM in both directions locks nobody out.
func chooseCiphers(offer *kexInit, hardware bool) []string {
	if offer == nil || !hardware {
		return ciphers()
	}
	common := slices.DeleteFunc(fastCiphers(), func(c string) bool {
		return !slices.Contains(offer.CiphersIn, c) || !slices.Contains(offer.CiphersOut, c)
	})
	if len(common) == 0 {
		return ciphers()
	}
	return common
}

// hostSigners prepares host keys: an RSA key signs with SHA-2 only.
func hostSigners(in []gossh.Signer) ([]gossh.Signer, error) {
	out := make([]gossh.Signer, 0, len(in))
	for _, s := range in {
		if s.PublicKey().Type() == gossh.KeyAlgoRSA {
			as, ok := s.(gossh.AlgorithmSigner)
			if !ok {
				return nil, fmt.Errorf("configure ssh: the RSA host key cannot sign with SHA-2")
			}
			wrapped, err := gossh.NewSignerWithAlgorithms(as, []string{gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256})
			if err != nil {
				return nil, fmt.Errorf("configure the RSA host key: %w", err)
			}
			s = wrapped
		}
		out = append(out, s)
	}
	return out, nil
}
