#include "server/service/calibration_text.h"

namespace assay {

// Variety is the point: channels that only code or figures or dialogue excite are seen too. A bad text can make bounds
// looser, never wrong. In two literals: some compilers take no more than 16 KiB in one.
const std::string& calibration_text() {
  static const std::string text = std::string(R"(The harbour master kept two books. In the first she wrote what ships had declared: timber, salt, forty barrels of lamp oil, a crate of glass eyes for a hospital in the hills. In the second she wrote what she had counted herself, walking the quay at dusk with a lantern and a piece of chalk. The books never agreed. For nineteen years nobody had asked to see the second one, and then, on a wet morning in October, three men in grey coats asked for nothing else.

"You will find it dull," she said, and pushed it across the table.

"Dull is what we came for," said the oldest of them. He turned the pages slowly, wetting his thumb. "Here. The fourteenth of March. The Adelaide declared ninety sacks of flour. You counted eighty-one."

"Then there were eighty-one."

"Did you tell anyone?"

"I wrote it down. That is how I tell people."

He laughed at that, but not unkindly, and asked for a chair. By noon they had a list of thirty-seven differences, and by evening they knew that every ship with a difference had been loaded at the same warehouse, on the night shift, under the same foreman. The harbour master made tea. Outside the gulls walked up and down the wall like clerks who have lost a file.

How to repair a puncture. Turn the bicycle upside down so that it stands on saddle and handlebars. Open the quick release, lift the wheel out and let the remaining air escape through the valve. Push both tyre levers under the edge of the tyre, a hand's width apart, and pull the edge over the rim. Take out the tube, pump it up a little and listen; if you hear nothing, hold it under water and look for bubbles. Mark the hole with chalk. Roughen the rubber around it with sandpaper, spread a thin layer of cement, wait five minutes until it no longer looks wet, then press the patch on firmly from the middle outwards. Before you put the tube back, run your fingers carefully along the inside of the tyre: the thorn or splinter that made the first hole is often still there and will make a second.

Question: A train leaves at 09:40 and arrives at 13:05. It stops twice, for 6 minutes and for 9 minutes. Its average speed while moving is 96 kilometres per hour. How long is the line?
Answer: From 09:40 to 13:05 there are 3 hours and 25 minutes, which is 205 minutes. Without the stops it moves for 205 - 15 = 190 minutes. At 96 kilometres per hour it covers 1.6 kilometres per minute, so the line is 190 x 1.6 = 304 kilometres long.

Dear Ms Okafor,
thank you for your letter of 2 June about the heating in building C. You are right that the radiators on the third floor were cold in eleven of the last fourteen weeks, and you are right that we said in February it would not happen again. The pump was replaced, but the valve behind it, which we did not open at the time, turned out to be half closed by scale. It has now been cleaned. Our technician will measure the temperature in your office every Monday until the end of the month; please keep the attached table and note anything unusual. We will take 120.00 off the next invoice (number 2291). With kind regards, the facilities team.

The liver does several hundred jobs, and most of them quietly. Blood from the gut reaches it first, carrying whatever has been eaten, drunk or swallowed as medicine. Sugar in excess is stored as glycogen; sugar in short supply is made from other things. Ammonia, which would harm the brain, becomes urea, which leaves with the urine. Bile is made there, a litre or so a day, and without it fat would pass through us almost unchanged. What makes the organ remarkable is less any one of these tasks than its patience: two thirds of it can be removed and within some weeks the rest has grown to nearly the old size, although not to the old shape.

def median(values):
    """Middle of the sorted values; the mean of the two middle ones when their number is even."""
    if not values:
        raise ValueError("median of nothing")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2

for line in open("measurements.csv"):
    name, *numbers = line.strip().split(",")
    print(f"{name:>12}: {median([float(x) for x in numbers]):8.3f}")

)") + R"(A short history of the pencil would have to begin with a storm. Sometime in the sixteenth century, so the story goes, a large tree fell in a valley in the north of England, and under its roots shepherds found a black, greasy stone with which they could mark their sheep. It was taken for a kind of lead, and the name has stuck ever since, although there is not a trace of lead in it. The stone was so pure that it could be sawn into sticks; wrapped in string, later glued between strips of cedar, it became the most modest of all writing tools. When war cut the supply, an officer on the other side of the Channel ground poorer graphite to dust, mixed it with clay and baked it. More clay, harder point. The numbers and letters on the pencils in your drawer go back to that kiln.

Meeting notes, Thursday. Present: Inés, Tomasz, Ruth (by phone), Dao. 1. Budget: 41,300 spent of 52,000; travel is over plan by 8 percent, printing under by 15. 2. The museum wants the panels two weeks earlier. Tomasz thinks it can be done if the translations arrive by the 9th. Ruth: they will not arrive by the 9th. Agreed: panels one to six early, the others as planned. 3. Nobody has a key to the cellar. Dao asks the caretaker. 4. Next meeting in three weeks, same room, bring photographs.

In the evening the wind went round to the north and the whole orchard changed its voice. All day the leaves had made the sound of someone turning over in bed; now they hissed. Old Piet stood at the gate and counted the trees he could still see, which was what he did instead of praying. Eleven, ten, nine. The ladder had been left out. It would have to stay out. He thought of his brother, who had gone to sea because he could not bear to wait for fruit, and who wrote once a year, always about the weather. "Here it is hot," he wrote. "Here it rains for a month and then everything is green in one day, you would not believe it." Piet believed it. He had never been further than the market town, and he believed almost everything.

Rules of the library: Readers may borrow up to eight books for four weeks. A loan can be renewed twice unless someone else has asked for the book. Newspapers, maps and anything with a red label stay in the building. Food is not allowed in the reading room; water in closed bottles is. Children under seven must be with an adult. If you damage a book, tell us - we would rather mend it than find it. Fines are 0.20 a day and never more than the price of the book.

If the demand for a good falls when its price rises, one speaks of ordinary behaviour, and almost everything that can be bought behaves so. The exceptions are instructive. A poor household that lives mostly on bread may eat more of it when it becomes dearer, because there is then no money left for meat. A handbag may sell better at a higher price because the price is what is being bought. And in a market for used cars a very low price may drive buyers away: they ask themselves what the seller knows. In each case the price is doing a second job besides the first; it measures wealth, or rank, or quality, and the two jobs pull in different directions.

User: Can you explain why the sky is blue, but without the word "scattering"?
Assistant: Sunlight is a mixture of all colours. On its way through the air it meets molecules that are much smaller than its waves. They take up a little of the light and send it out again in every direction, and they do this far more for short waves than for long ones: about five times more for blue than for red. So when you look away from the sun, what reaches your eye is light that has been redirected, and most of that is blue. Near the horizon in the evening the light has had such a long way that the blue has already been sent elsewhere; what is left is orange and red.
User: And why not violet, then?
Assistant: Partly because the sun sends less violet to begin with, partly because the upper air takes some of it, and mostly because our eyes are not very sensitive to it.

{"station": "Kirkwall", "elevation_m": 26, "readings": [{"time": "06:00", "temperature_c": 7.4, "wind_kmh": 31, "rain_mm": 0.2}, {"time": "12:00", "temperature_c": 9.1, "wind_kmh": 44, "rain_mm": 1.8}, {"time": "18:00", "temperature_c": 8.0, "wind_kmh": 52, "rain_mm": 0.0}], "valid": true, "comment": null}

Every proof in the notebook ended with the same small drawing of a snail. Her students assumed it was a joke about speed. Years later one of them asked, and she said no, it was about the shell: you begin in the middle, where there is hardly any room, and each turn you make rests upon the one before; nothing is thrown away, nothing has to be moved, and if you were careful in the beginning the whole thing will carry you. Then she wiped the board, wrote "Suppose, for the sake of argument, that there are only finitely many", and waited for somebody to object.
)";
  return text;
}

}  // namespace assay
