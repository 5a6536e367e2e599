// The search of the site: functions before prose, and pages that say how before tables and the changelog.
var Scorer = {
  objNameMatch: 40, objPartialMatch: 12, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
  score: ([page, title, anchor, description, score]) => {
    if (page.startsWith("reference/generated/")) return score + 3;
    return /^changelog|^references|measurements$|experiments$|theorems$|^genindex/.test(page) ? score - 4 : score;
  },
};
