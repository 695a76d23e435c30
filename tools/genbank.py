"""A reader of GenBank flat files: sequence, and features with their locations and qualifiers.

The format is that of https://www.insdc.org/submitting-standards/feature-table/: a key in column 6,
a location or a qualifier from column 22, both continued on lines that are blank before column 22.
Positions are 1-based with both ends included, as in the file and as in GFF.
"""

import re
from dataclasses import dataclass, field

KEY_COLUMN = 5
VALUE_COLUMN = 21


class GenbankError(Exception):
    """The text is not what the format allows; the message says where."""


@dataclass
class Part:
    first: int
    last: int
    strand: str  # "+" or "-"


@dataclass
class Feature:
    key: str
    parts: list  # of Part, in the order in which they are transcribed
    qualifiers: dict = field(default_factory=dict)  # name -> list of texts; "" for a flag


@dataclass
class Record:
    version: str
    definition: str
    length: int  # as the LOCUS line says
    sequence: str  # upper case
    features: list


def parse_location(text):
    """The parts of a location in transcription order. Partial ends (`<1`, `>9`) count as ends."""
    text = re.sub(r"\s", "", text)
    match = re.fullmatch(r"(complement|join|order)\((.*)\)", text)
    if match and match[1] == "complement":
        flipped = {"+": "-", "-": "+"}
        inner = parse_location(match[2])
        return [Part(p.first, p.last, flipped[p.strand]) for p in reversed(inner)]
    if match:
        return [part for piece in _split_outside_brackets(match[2]) for part in parse_location(piece)]
    match = re.fullmatch(r"<?(\d+)(?:\.\.>?(\d+))?", text)
    if not match:
        raise GenbankError(f'location "{text}" is not understood')
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last:
        raise GenbankError(f'location "{text}" is empty')
    return [Part(first, last, "+")]


def _split_outside_brackets(text):
    depth, start, pieces = 0, 0, []
    for i, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    return pieces + [text[start:]]


def _parse_features(lines):
    features = []
    entry = []  # lines of one feature: its location and qualifiers, each with its continuations
    for line in lines + [" " * KEY_COLUMN + "end"]:
        if line[:VALUE_COLUMN].strip():
            if entry:
                features.append(_parse_feature(entry))
            entry = [line[:VALUE_COLUMN].strip(), line[VALUE_COLUMN:].strip()]
        elif re.match(r"/\w", line[VALUE_COLUMN:]) and not _inside_quotes(entry[-1]):
            entry.append(line[VALUE_COLUMN:].strip())
        else:
            entry[-1] += "\n" + line[VALUE_COLUMN:].strip()
    return features


def _inside_quotes(text):
    return text.startswith("/") and text.count('"') % 2 == 1


def _parse_feature(entry):
    feature = Feature(entry[0], parse_location(entry[1]))
    for text in entry[2:]:
        name, _, value = text[1:].partition("=")
        joint = "" if name == "translation" else " "
        value = value.replace("\n", joint)
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1].replace('""', '"')
        feature.qualifiers.setdefault(name, []).append(value)
    return feature


def parse_genbank(text):
    """The record of a file that holds one."""
    version = definition = None
    length = -1
    feature_lines, bases = [], []
    section = ""
    for line in text.splitlines():
        if line.startswith("//"):
            break
        if line[:1].strip():  # a keyword in the first column
            section, _, value = line.partition(" ")
            value = value.strip()
            if section == "LOCUS":
                length = int(re.search(r"(\d+) bp", value)[1]) if " bp" in value else -1
            elif section == "DEFINITION":
                definition = value
            elif section == "VERSION":
                version = value
        elif section == "DEFINITION":
            definition += " " + line.strip()
        elif section == "FEATURES":
            feature_lines.append(line)
        elif section == "ORIGIN":
            bases.append(re.sub(r"[\s\d]", "", line))
    if version is None or definition is None:
        raise GenbankError("no LOCUS, DEFINITION and VERSION lines; is this a GenBank file?")
    sequence = "".join(bases).upper()
    if len(sequence) != length:
        raise GenbankError(f"{version} has {len(sequence)} bases, its LOCUS line says {length}")
    features = _parse_features(feature_lines)
    for feature in features:
        if any(part.last > length for part in feature.parts):
            raise GenbankError(f"a {feature.key} of {version} reaches beyond its {length} bases")
    return Record(version, definition, length, sequence, features)


def fasta_text(name, record, width=70):
    lines = [f">{name} {record.version} {record.definition}"]
    lines += [record.sequence[i : i + width] for i in range(0, record.length, width)]
    return "\n".join(lines) + "\n"


def _escape(text):
    return re.sub(r"[\x00-\x1f\x7f%;=&,]", lambda match: f"%{ord(match[0]):02X}", text)


def phases(parts, codon_start=1):
    """GFF3's phase of each part: the bases before the first codon that begins in it."""
    result, phase = [], codon_start - 1
    for part in parts:
        result.append(phase)
        phase = (phase - (part.last - part.first + 1)) % 3
    return result


def gff_lines(name, record):
    """GFF3 lines of the genes and coding sequences, a line for each part of the latter."""
    lines = [f"##sequence-region {name} 1 {record.length}"]
    for feature in record.features:
        if feature.key not in ("gene", "CDS"):
            continue
        tag = feature.qualifiers.get("locus_tag", [None])[0]
        if tag is None:
            raise GenbankError(f"a {feature.key} of {record.version} has no locus_tag")
        attributes = [f"ID={'gene' if feature.key == 'gene' else 'cds'}:{_escape(tag)}"]
        if feature.key == "CDS":
            attributes.append(f"Parent=gene:{_escape(tag)}")
        for source, target in (("gene", "Name"), ("product", "product"), ("protein_id", "protein_id")):
            if source in feature.qualifiers:
                attributes.append(f"{target}={_escape(feature.qualifiers[source][0])}")
        for flag in ("pseudo", "ribosomal_slippage"):
            if flag in feature.qualifiers:
                attributes.append(f"{flag}=true")
        lines += _gff_parts(name, feature, ";".join(attributes))
    return lines


def _gff_parts(name, feature, attributes):
    if feature.key == "gene":
        first = min(part.first for part in feature.parts)
        last = max(part.last for part in feature.parts)
        rows = [(first, last, feature.parts[0].strand, ".")]
    else:
        codon_start = int(feature.qualifiers.get("codon_start", ["1"])[0])
        rows = [
            (part.first, part.last, part.strand, str(phase))
            for part, phase in zip(feature.parts, phases(feature.parts, codon_start))
        ]
    return [
        "\t".join((name, "GenBank", feature.key, str(first), str(last), ".", strand, phase, attributes))
        for first, last, strand, phase in sorted(rows)
    ]
