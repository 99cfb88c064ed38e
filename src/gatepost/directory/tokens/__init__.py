"""Bearer tokens: judged by their issuer's keys, or by asking the issuer."""
