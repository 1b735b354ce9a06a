"""The papers whose methods a run uses, as BibTeX.

Knows bibliographic data alone; which paper a text needs is the text's business (its citation marks).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """`short`: as it reads in a sentence. `fields` are BibTeX, already in LaTeX."""

    short: str
    kind: str
    fields: Mapping[str, str]


def _article(short: str, author: str, title: str, journal: str, year: int, place: str, doi: str) -> Reference:
    """`place`: volume, number and pages, such as `27(1):46--51`."""
    volume, pages = place.split(":")
    volume, _, number = volume.partition("(")
    fields = {"author": author, "title": title, "journal": journal, "year": str(year), "volume": volume,
              "number": number.rstrip(")"), "pages": pages, "doi": doi}  # fmt: skip
    return Reference(short, "article", {key: value for key, value in fields.items() if value})


REFERENCES: Mapping[str, Reference] = {
    "cochran1977": Reference("Cochran 1977", "book", {
        "author": "Cochran, William G.", "title": "Sampling Techniques", "edition": "3", "publisher": "Wiley",
        "address": "New York", "year": "1977"}),
    "efron1987": _article(
        "Efron 1987", "Efron, Bradley", "Better bootstrap confidence intervals",
        "Journal of the American Statistical Association", 1987, "82(397):171--185",
        "10.1080/01621459.1987.10478410"),
    "fisher1935": Reference("Fisher 1935", "book", {
        "author": "Fisher, Ronald A.", "title": "The Design of Experiments", "publisher": "Oliver and Boyd",
        "address": "Edinburgh", "year": "1935"}),
    "hautus1995": _article(
        "Hautus 1995", "Hautus, Michael J.",
        "Corrections for extreme proportions and their biasing effects on estimated values of $d'$",
        r"Behavior Research Methods, Instruments, \& Computers", 1995, "27(1):46--51", "10.3758/BF03203619"),
    "holm1979": _article(
        "Holm 1979", "Holm, Sture", "A simple sequentially rejective multiple test procedure",
        "Scandinavian Journal of Statistics", 1979, "6(2):65--70", ""),
    "julious2004": _article(
        "Julious 2004", "Julious, Steven A.", "Sample sizes for clinical trials with normal data",
        "Statistics in Medicine", 2004, "23(12):1921--1986", "10.1002/sim.1783"),
    "korn1998": _article(
        "Korn and Graubard 1998", "Korn, Edward L. and Graubard, Barry I.",
        "Confidence intervals for proportions with small expected number of positive counts estimated from survey "
        "data", "Survey Methodology", 1998, "24(2):193--201", ""),
    "kwon2023": Reference("Kwon et al. 2023", "inproceedings", {
        "author": "Kwon, Woosuk and Li, Zhuohan and Zhuang, Siyuan and Sheng, Ying and Zheng, Lianmin and Yu, Cody "
        "Hao and Gonzalez, Joseph E. and Zhang, Hao and Stoica, Ion",
        "title": "Efficient memory management for large language model serving with {PagedAttention}",
        "booktitle": "Proceedings of the 29th Symposium on Operating Systems Principles", "pages": "611--626",
        "year": "2023", "doi": "10.1145/3600006.3613165"}),
    "mann1947": _article(
        "Mann and Whitney 1947", "Mann, Henry B. and Whitney, Donald R.",
        "On a test of whether one of two random variables is stochastically larger than the other",
        "The Annals of Mathematical Statistics", 1947, "18(1):50--60", "10.1214/aoms/1177730491"),
    "delapena1999": _article(
        "de la Peña 1999", "de la Pe{\\~n}a, Victor H.",
        "A general class of exponential inequalities for martingales and ratios", "The Annals of Probability", 1999,
        "27(1):537--564", "10.1214/aop/1022677271"),
    "howard2021": _article(
        "Howard et al. 2021", "Howard, Steven R. and Ramdas, Aaditya and McAuliffe, Jon and Sekhon, Jasjeet",
        "Time-uniform, nonparametric, nonasymptotic confidence sequences", "The Annals of Statistics", 2021,
        "49(2):1055--1080", "10.1214/20-AOS1991"),
    "mcnemar1947": _article(
        "McNemar 1947", "McNemar, Quinn",
        "Note on the sampling error of the difference between correlated proportions or percentages", "Psychometrika",
        1947, "12(2):153--157", "10.1007/BF02295996"),
    "newcombe1998": _article(
        "Newcombe 1998", "Newcombe, Robert G.",
        "Improved confidence intervals for the difference between binomial proportions based on paired data",
        "Statistics in Medicine", 1998, "17(22):2635--2650",
        "10.1002/(SICI)1097-0258(19981130)17:22<2635::AID-SIM954>3.0.CO;2-C"),
    "phipson2010": _article(
        "Phipson and Smyth 2010", "Phipson, Belinda and Smyth, Gordon K.",
        "Permutation {P}-values should never be zero: calculating exact {P}-values when permutations are randomly drawn",
        "Statistical Applications in Genetics and Molecular Biology", 2010, "9(1):Article 39",
        "10.2202/1544-6115.1585"),
    "royston2013": _article(
        "Royston and Parmar 2013", "Royston, Patrick and Parmar, Mahesh K. B.",
        "Restricted mean survival time: an alternative to the hazard ratio for the design and analysis of randomized "
        "trials with a time-to-event outcome", "BMC Medical Research Methodology", 2013, "13(1):152",
        "10.1186/1471-2288-13-152"),
    "schuirmann1987": _article(
        "Schuirmann 1987", "Schuirmann, Donald J.",
        "A comparison of the two one-sided tests procedure and the power approach for assessing the equivalence of "
        "average bioavailability", "Journal of Pharmacokinetics and Biopharmaceutics", 1987, "15(6):657--680",
        "10.1007/BF01068419"),
    "student1908": _article(
        "Student 1908", "{Student}", "The probable error of a mean", "Biometrika", 1908, "6(1):1--25",
        "10.1093/biomet/6.1.1"),
    "westfall1993": Reference("Westfall and Young 1993", "book", {
        "author": "Westfall, Peter H. and Young, S. Stanley",
        "title": "Resampling-Based Multiple Testing: Examples and Methods for {p}-Value Adjustment",
        "publisher": "Wiley", "address": "New York", "year": "1993"}),
    "wilson1927": _article(
        "Wilson 1927", "Wilson, Edwin B.", "Probable inference, the law of succession, and statistical inference",
        "Journal of the American Statistical Association", 1927, "22(158):209--212",
        "10.1080/01621459.1927.10502953"),
    "zou2008": _article(
        "Zou and Donner 2008", "Zou, Guang Yong and Donner, Allan",
        "Construction of confidence limits about effect measures: a general approach", "Statistics in Medicine", 2008,
        "27(10):1693--1702", "10.1002/sim.3095"),
    "wolf2020": Reference("Wolf et al. 2020", "inproceedings", {
        "author": "Wolf, Thomas and Debut, Lysandre and Sanh, Victor and Chaumond, Julien and Delangue, Clement and "
        "Moi, Anthony and Cistac, Pierric and Rault, Tim and Louf, R{\\'e}mi and Funtowicz, Morgan and others",
        "title": "Transformers: state-of-the-art natural language processing",
        "booktitle": "Proceedings of the 2020 Conference on Empirical Methods in Natural Language Processing: System "
        "Demonstrations", "pages": "38--45", "year": "2020", "doi": "10.18653/v1/2020.emnlp-demos.6"}),
}  # fmt: skip

SHORT: Mapping[str, str] = {key: reference.short for key, reference in REFERENCES.items()}


def bibtex(keys: Iterable[str]) -> str:
    """references.bib of these keys, sorted."""
    entries = []
    for key in sorted(set(keys)):
        reference = REFERENCES[key]
        fields = "".join(f"  {field} = {{{value}}},\n" for field, value in reference.fields.items())
        entries.append(f"@{reference.kind}{{{key},\n{fields}}}\n")
    return "\n".join(entries)
